"""The objects of a store: bytes that are found by their sha256, written once and never changed."""

from __future__ import annotations

import hashlib
import mmap
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from mobileprep.core.files import (
    place,
    read_blocks,
    release_pages,
    unreadable,
    write_bytes,
    write_new,
)
from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.formats.parts import Part, read_between, read_index
from mobileprep.formats.wire import Buffer
from mobileprep.pipeline.file_index import FileIndex
from mobileprep.pipeline.obstacles import clear_way

HINT = "free space on its disk, or set MOBILEPREP_CACHE to a folder that can be written"
_SIZE = 2
"""Where a stamp has the length."""
_GONE_HINT = "build again: what is missing is made anew"


class Objects:
    """The objects below one folder. Several builds may use it at once: every write is atomic.

    Args:
        folder: the store's folder.
        files: tells whether a file still has the bytes that it had.
    """

    def __init__(self, folder: Path, files: FileIndex) -> None:
        self._folder = folder
        self._cas = os.path.join(folder, "cas", "")  # noqa: PTH118 - see _name
        self._files = files
        self._maps: weakref.WeakValueDictionary[str, _Map] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        # What this process has written or read whole, by the file that it was then.
        self._verified: dict[str, tuple[int, ...]] = {}
        self.written_bytes = 0
        """What this process has added."""

    def path(self, sha256: str) -> Path:
        """Where the bytes of that digest lie, or would."""
        return Path(self._name(sha256))

    def holds(self, part: Part) -> bool:
        """Whether an object is there, and its bytes are those of its digest."""
        return not self.absent([part])

    def absent(self, parts: Iterable[Part]) -> list[Part]:
        """Those of some objects that are not there, or damaged; hashed several at once."""
        absent = self._not_whole(parts)
        # Another build, or thread, may have put one in place while it was looked at.
        return self._not_whole(absent) if absent else absent

    def _not_whole(self, parts: Iterable[Part]) -> list[Part]:
        found = {part: _stamp(self._name(part.sha256)) for part in parts}
        due = {
            part: stamp
            for part, stamp in found.items()
            if stamp is not None and not self._is_verified(part, stamp)
        }
        absent = {part for part, stamp in found.items() if stamp is None}
        wanted = [(self.path(part.sha256), part.sha256, part.size) for part in due]
        for part, is_whole in zip(due, self._files.match_many(wanted), strict=True):
            if is_whole and _fits(part, due[part]):
                self._verified[part.sha256] = due[part]
            else:
                absent.add(part)
        return [part for part in found if part in absent]

    def view(self, part: Part) -> memoryview:
        """An object's bytes, mapped; the map lives as long as a view on it.

        Raises:
            CorruptFileError: it is not there, or damaged.
        """
        if not part.size:
            return memoryview(b"")
        with self._lock:
            known = self._maps.get(part.sha256)
            if known is None:
                known = self._maps[part.sha256] = _Map(self._checked(part), part.size)
            return memoryview(known)

    def put(self, data: Iterable[Buffer]) -> Part:
        """Keep bytes, given in pieces.

        Raises:
            ArtifactError: the store cannot be written.
        """
        pieces = list(data)
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        part = Part(digest.hexdigest(), sum(map(len, pieces)))
        self._write(part, pieces)
        return part

    def keep(self, part: Part, data: Buffer) -> memoryview:
        """Keep bytes whose digest is known; where they lie then.

        Raises:
            ArtifactError: the store cannot be written.
        """
        if not is_mapped(data):
            self._write(part, [data])
        return self.view(part)

    def take(self, path: Path) -> Part:
        """Move a finished file of a workspace into the store.

        Raises:
            ArtifactError: the store cannot be written.
        """
        part = Part(self._files.digest(path), path.stat().st_size)
        self.adopt(part, path)
        return part

    def adopt(self, part: Part, path: Path) -> None:
        """Take a file whose bytes are known to be those of an object.

        Raises:
            ArtifactError: the store cannot be written.
        """
        target = self.path(part.sha256)
        try:
            try:
                _move(path, target)
            except OSError:
                # Only where it fails: hundreds of objects may come from a remote store.
                clear_way(target, self._folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                _move(path, target)
        except OSError as error:
            raise unwritable(error, target.parent) from error
        self._written(target, part)

    def place(self, part: Part, target: Path) -> None:
        """Give ``target`` an object's bytes.

        Raises:
            CorruptFileError: the object is not there, or damaged.
            ArtifactError: the target cannot be written.
        """
        place(self._checked(part), target)

    def assemble(self, index: Part) -> Iterator[memoryview]:
        """The pieces of the file that an index tells how to put together.

        Raises:
            CorruptFileError: an object is not there, or damaged.
        """
        for piece in read_between(self.view(index), self._named(index)):
            if isinstance(piece, Part):
                view = self.view(piece)
                yield view
                _let_go(view.obj)
            else:
                yield piece

    def assemble_blocks(self, index: Part) -> Iterator[memoryview]:
        """The same bytes to be written, in blocks that are there until the next is asked for.

        Raises:
            CorruptFileError: an object is not there, or damaged.
        """
        for piece in read_between(self.view(index), self._named(index)):
            if isinstance(piece, Part):
                yield from self._blocks(piece)
            else:
                yield piece

    def assembled_size(self, index: Part) -> int:
        """The length of the file that an index tells how to put together.

        Raises:
            CorruptFileError: the index is not there, or is none.
        """
        pieces = read_between(self.view(index), self._named(index))
        return sum(piece.size if isinstance(piece, Part) else len(piece) for piece in pieces)

    def _blocks(self, part: Part) -> Iterator[memoryview]:
        size = 0
        for block in read_blocks(self._checked(part)):
            size += len(block)
            yield block
        if size != part.size:  # it was altered since it was looked at
            raise self._damaged(part)

    def mapped_bytes(self) -> int:
        """The length of all objects that are mapped now."""
        with self._lock:
            return sum(map(len, self._maps.values()))

    def let_go(self) -> None:
        """Let go of the memory that mapped objects take; they are read again where needed."""
        with self._lock:
            maps = list(self._maps.values())
        for mapped in maps:
            _let_go(mapped)

    def parts(self, index: Part) -> tuple[Part, ...]:
        """The objects that an index names, in order.

        Raises:
            CorruptFileError: the index is not there, or damaged.
        """
        return read_index(self.view(index), self._named(index))[0]

    def _is_verified(self, part: Part, stamp: tuple[int, ...]) -> bool:
        return self._verified.get(part.sha256) == stamp and _fits(part, stamp)

    def _name(self, sha256: str) -> str:
        # Thousands of times in a build; joining Path objects takes twenty times as long.
        return f"{self._cas}{sha256[:2]}{os.sep}{sha256}"

    def _named(self, part: Part) -> str:
        return self._name(part.sha256)

    def _checked(self, part: Part) -> Path:
        if not self.holds(part):
            raise self._damaged(part)
        return self.path(part.sha256)

    def _damaged(self, part: Part) -> CorruptFileError:
        message = "the store's object is missing or damaged"
        return CorruptFileError(message, _GONE_HINT, self._named(part))

    def _write(self, part: Part, pieces: Sequence[Buffer]) -> None:
        if self.holds(part):
            return
        path = self.path(part.sha256)
        try:
            write_new(str(path), pieces)
        except OSError:
            # Only where that fails: a graph may have hundreds of tensors.
            self._write_in_the_way(path, pieces)
        self._written(path, part)

    def _write_in_the_way(self, path: Path, pieces: Sequence[Buffer]) -> None:
        """Write an object whose folder is missing, or in whose place something else lies."""
        try:
            clear_way(path, self._folder)
            write_bytes(path, iter(pieces), follow=False)
        except OSError as error:
            raise unwritable(error, path.parent) from error
        except ArtifactError as error:
            raise ArtifactError(error.message, HINT, error.where) from error

    def _written(self, path: Path, part: Part) -> None:
        with self._lock:
            self.written_bytes += part.size
        self._files.note(path, part.sha256)
        stamp = _stamp(str(path))
        if stamp is not None:
            self._verified[part.sha256] = stamp


def _let_go(mapped: object) -> None:
    if isinstance(mapped, _Map):
        release_pages(mapped)


def _fits(part: Part, stamp: tuple[int, ...]) -> bool:
    """Whether a file has the length that is told of it: a record may tell another."""
    return stamp[_SIZE] == part.size


def _move(path: Path, target: Path) -> None:
    try:
        path.replace(target)
    except FileNotFoundError:
        target.parent.mkdir(exist_ok=True)
        path.replace(target)


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - see Objects._name
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def is_mapped(data: object) -> bool:
    """Whether bytes are a view on an object of a store."""
    return isinstance(data, memoryview) and isinstance(data.obj, _Map)


class _Map(mmap.mmap):
    """An object, mapped read-only."""

    def __new__(cls, path: Path, size: int) -> _Map:
        """Map ``size`` bytes.

        Raises:
            CorruptFileError: the file has fewer, or cannot be read.
        """
        try:
            with path.open("rb") as stream:
                return super().__new__(cls, stream.fileno(), size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            reason = error if isinstance(error, OSError) else OSError(str(error))
            raise unreadable(path, reason) from error


def unwritable(error: OSError, folder: Path) -> ArtifactError:
    """The error for a store that the system would not let us write to."""
    reason = error.strerror or str(error)
    return ArtifactError(f"the store cannot be written: {reason}", HINT, str(folder))
