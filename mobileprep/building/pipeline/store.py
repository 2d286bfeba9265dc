"""The build cache: records of stage runs by fingerprint, and the objects that they refer to.

A record contains its own digest and key. An edited or renamed record counts as missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins

from mobileprep.building.pipeline.cache_files import FORMAT, mark_used, seal, unseal
from mobileprep.building.pipeline.eviction import Evicted, evict, keep_within
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.locks import Release, share
from mobileprep.building.pipeline.output import (
    LastRun,
    Output,
    Record,
    last_run_from,
    record_from,
    sweep,
    workspace_name,
)
from mobileprep.core.files import (
    atomic_writer,
    place,
    read_file,
    release_pages,
    sha256_bytes,
    unreadable,
    write_bytes,
    write_new,
)
from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.formats.parts import Part, read_between, read_index
from mobileprep.formats.wire import Buffer

if TYPE_CHECKING:
    from mobileprep.building.pipeline.remote.guarded import Remote, Sharing

# Maximum size of a record.
_MOST_RECORD: Final = 64 << 20
INLINE = 64 << 10
"""Maximum size of a JSON output that is stored in the record itself."""


class Store:
    """The cache in one directory. Several builds may use it at once: every write is atomic.

    Args:
        folder: path of the cache.
        files: index that detects changed files; by default every file is hashed.
        remote: shared remote cache for entries that are missing locally.
    """

    def __init__(
        self, folder: Path, files: FileIndex | None = None, remote: Remote | None = None
    ) -> None:
        self.root = folder
        """Directory that contains the caches of all formats."""
        self.folder = folder / FORMAT
        self.files = files or FileIndex(None)
        self.objects = Objects(self.folder, self.files)
        self._release: Release | None = None
        self._use = threading.Lock()
        self._fetching = threading.Lock()
        self._asking = threading.Lock()
        # Stale stages are checked repeatedly, but the remote cache is queried once per fingerprint.
        self._requested: set[str] = set()
        # The objects that indexes in the remote cache name.
        self._remote_indexes: dict[Part, tuple[Part, ...]] = {}
        self.sharing: Sharing | None = None
        if remote is not None:
            # Imported late because few builds share a cache.
            from mobileprep.building.pipeline.remote.guarded import Sharing

            self.sharing = Sharing(remote, self.folder)

    def missing(self, output: Output) -> frozenset[str]:
        """Return the digests of the objects of an output that no cache provides.

        They are missing or damaged locally and absent from the remote cache. Its listing is
        trusted, except for indexes, which are downloaded. For a missing index, only its own digest
        is returned because its objects are unknown.
        """
        needed = self.needed(output)
        if needed is None or not self._fits(output):
            assert output.index is not None
            return frozenset((output.index.sha256,))
        absent = self.objects.absent(needed)
        if absent and self.sharing is not None:
            presence = zip(absent, self.sharing.has(absent), strict=True)
            absent = [part for part, is_there in presence if not is_there]
        return frozenset(part.sha256 for part in absent)

    def obtain(self, output: Output) -> bool:
        """Ensure that all objects of an output are stored locally; return whether they are.

        Local objects are verified. Missing ones are downloaded from the remote cache.
        """
        # The index names the other objects.
        if output.index is not None and not (self._fetch([output.index]) and self._fits(output)):
            return False
        return self._fetch(self.parts(output))

    def fetch(self, outputs: Iterable[Output]) -> None:
        """Download missing objects of several outputs that the remote cache has in one batch."""
        if self.sharing is not None:
            listed = list(outputs)
            for _ in range(2):  # indexes, then their objects
                self._fetch(part for output in listed for part in self.parts(output))

    def share(self, fingerprint: str, record: Record) -> None:
        """Upload the outputs of a stage to the remote cache in the background, if there is one."""
        if self.sharing is None:
            return
        parts = {part for output in record.outputs.values() for part in self.parts(output)}
        objects = sorted((part.sha256, self.objects.path(part.sha256)) for part in parts)
        self.sharing.send(fingerprint, self._path("ac", fingerprint), objects)

    def parts(self, output: Output) -> tuple[Part, ...]:
        """Return the objects of an output; if its index is missing, only the index."""
        if output.part is None:
            return ()
        if output.index is None:
            return (output.part,)
        try:
            return (output.part, *self.objects.parts(output.index))
        except CorruptFileError:
            return (output.part,)

    def needed(self, output: Output) -> tuple[Part, ...] | None:
        """Return all objects of an output; None if neither cache has its index.

        An index in the remote cache is read without storing it.
        """
        index = output.index
        if index is None or self.objects.holds(index):
            return self.parts(output)
        if index not in self._remote_indexes and self.sharing is not None:
            with (
                self.sharing.fetched("cas", [(index.sha256, index.size)]) as (file,),
                contextlib.suppress(CorruptFileError),
            ):
                if file is not None:
                    named = read_index(read_file(file, limit=index.size), str(file))[0]
                    self._remote_indexes[index] = (index, *named)
        return self._remote_indexes.get(index)

    def _fits(self, output: Output) -> bool:
        """Return whether an output has the size in its record, if its index is stored locally."""
        if output.index is None or output.index.sha256 == output.sha256:
            return True  # a single object, whose size is checked with its digest
        if not self.objects.holds(output.index):
            return True
        try:
            return self.objects.assembled_size(output.index) == output.size
        except CorruptFileError:
            return False

    def _fetch(self, parts: Iterable[Part]) -> bool:
        """Ensure that objects are stored locally; return whether all of them are."""
        missing = self.objects.absent(parts)
        if not missing or self.sharing is None:
            return not missing
        # Targets that finish together often need the same objects: fetch them only once.
        with self._fetching:
            missing = self.objects.absent(missing)
            entries = [(part.sha256, part.size) for part in missing]
            with self.sharing.fetched("cas", entries) as files:
                for part, file in zip(missing, files, strict=True):
                    # The size in a record may differ from the size of the object.
                    if file is not None and file.stat().st_size == part.size:
                        self.objects.adopt(part, file)
        return not self.objects.absent(missing)

    def workspace(self) -> Path:
        """Create a work directory, which the caller removes.

        It has the subdirectories ``left`` for outputs and ``read`` for inputs.
        """
        folder = self.folder / "tmp" / workspace_name()
        try:
            for name in ("left", "read"):
                (folder / name).mkdir(parents=True)
        except OSError as error:
            raise unwritable(error, folder.parent) from error
        return folder

    def take(self, path: Path, *, inline: bool = False) -> Output:
        """Move a file of a work directory into the cache, or into the record if ``inline``."""
        if inline and path.stat().st_size <= INLINE:
            data = path.read_bytes()
            return Output(sha256_bytes(data), len(data), text=data.decode())
        part = self.objects.take(path)
        return Output(part.sha256, part.size)

    def pieces(self, output: Output) -> Iterator[bytes | memoryview]:
        """Yield the content of an output in chunks; for a graph, the content of its index."""
        if output.text is not None:
            yield output.text.encode()
        elif output.index is not None and output.index.sha256 != output.sha256:
            yield from self.objects.assemble(output.index)
        else:
            yield self.objects.view(Part(output.sha256, output.size))

    def publish(self, output: Output, target: Path) -> None:
        """Write the content of an output to ``target``."""
        if output.index is None and output.text is None:
            self.objects.place(Part(output.sha256, output.size), target)
        else:
            with atomic_writer(target, follow=False) as stream:
                stream.writelines(self.pieces(output))
        self.files.note(target, output.sha256)

    def load(self, fingerprint: str) -> Record | None:
        """Return the record of a fingerprint, or None if it is missing or unreadable."""
        record = self._own_record(fingerprint)
        if record is not None or self.sharing is None:
            return record
        with self._asking:
            # Another thread may have fetched it meanwhile.
            record = self._own_record(fingerprint)
            if record is None and fingerprint not in self._requested:
                self._requested.add(fingerprint)
                record = self._shared_record(fingerprint, self.sharing)
        return record

    def references(self, path: Path) -> list[str]:
        """Return the digests of all objects that a record file refers to, also through indexes."""
        record = record_from(self._json("ac", path.stem))
        if record is None:
            message = "is not a record"
            hint = "'mobileprep cache verify' removes damaged entries"
            raise CorruptFileError(message, hint, str(path))
        parts = [o.part for o in record.outputs.values() if o.part is not None]
        indexes = [o.index for o in record.outputs.values() if o.index is not None]
        inner = [part for index in indexes for part in self.objects.parts(index)]
        return [part.sha256 for part in (*parts, *inner)]

    def is_record(self, path: Path) -> bool:
        """Return whether a file is a valid record under its own name."""
        record = record_from(self._json("ac", path.stem))
        return record is not None and path == self._path("ac", path.stem)

    def begin(self) -> None:
        """Register that this run uses the cache, which prevents clearing until the run ends."""
        with self._use:
            if self._release is None:
                self._release = share(self.folder)
                sweep(self.folder / "tmp")

    def finish(self, limit: int | None) -> None:
        """End a run. If the run has used the cache, reduce the cache to ``limit`` bytes."""
        with self._use:
            release, self._release = self._release, None
        if release is not None:
            release()
            if limit is not None:
                keep_within(self.folder, limit, self.references)

    def collect(self, limit: int) -> Evicted:
        """Reduce the cache to ``limit`` bytes; the caller must hold it exclusively."""
        return evict(self.folder, limit, self.references)

    def save(self, fingerprint: str, record: Record) -> None:
        """Save a record.

        Raises:
            ArtifactError: the cache cannot be written.
        """
        self._write("ac", fingerprint, to_builtins(record))

    def last_run(self, task_key: str) -> LastRun | None:
        """Return a task's last run in this cache, or None if it is missing or unreadable."""
        return last_run_from(self._json("latest", task_key))

    def save_last_run(self, task_key: str, record: Record) -> None:
        """Save the summary of a task's last run; raises the same errors as ``save``."""
        self._write("latest", task_key, to_builtins(record.summary))

    def _own_record(self, fingerprint: str) -> Record | None:
        record = record_from(self._json("ac", fingerprint))
        if record is not None:
            mark_used(self._path("ac", fingerprint))
        return record

    def _shared_record(self, fingerprint: str, sharing: Sharing) -> Record | None:
        """Fetch a record from the remote cache and save it locally."""
        with sharing.fetched("ac", [(fingerprint, _MOST_RECORD)]) as (file,):
            if file is None:
                return None
            data = read_file(file, limit=_MOST_RECORD)
            record = record_from(unseal(fingerprint, data))
            if record is not None:
                # An unwritable cache is reported when a stage has run.
                with contextlib.suppress(ArtifactError):
                    write_bytes(self._path("ac", fingerprint), data, follow=False)
            return record

    def _path(self, kind: str, key: str) -> Path:
        return self.folder.joinpath(kind, key[:2], f"{key}.json")

    def _write(self, kind: str, key: str, data: object) -> None:
        _write_file(self._path(kind, key), [seal(key, data)])

    def _json(self, kind: str, key: str) -> object:
        try:
            return unseal(key, read_file(self._path(kind, key), limit=_MOST_RECORD))
        except CorruptFileError:
            # If a record is missing or damaged, its stage simply runs again.
            return None


HINT = (
    "free space on its disk, clear it with 'mobileprep cache clear', "
    "or set MOBILEPREP_CACHE to a folder that can be written"
)
_GONE_HINT = "build again to restore the missing entries"


class Objects:
    """The objects of one cache directory. Several builds may use it at once: every write is atomic.

    Args:
        folder: directory of the cache format.
        files: index that detects changed files.
    """

    def __init__(self, folder: Path, files: FileIndex) -> None:
        self._folder = folder
        self._cas = folder / "cas"
        self._files = files
        self._maps: weakref.WeakValueDictionary[str, _Map] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()

    def path(self, sha256: str) -> Path:
        """Return the path of the object with a digest, whether or not it exists."""
        return self._cas / sha256[:2] / sha256

    def holds(self, part: Part) -> bool:
        """Return whether an object exists and matches its digest."""
        return not self.absent([part])

    def absent(self, parts: Iterable[Part]) -> list[Part]:
        """Return the objects that are missing or damaged; hash them in parallel."""
        listed = list(dict.fromkeys(parts))
        requests = [(self.path(part.sha256), part.sha256, part.size) for part in listed]
        answers = zip(listed, self._files.match_many(requests), strict=True)
        return [part for part, is_whole in answers if not is_whole]

    def view(self, part: Part) -> memoryview:
        """Return the memory-mapped content of an object; the mapping lives as long as its views."""
        if not part.size:
            return memoryview(b"")
        with self._lock:
            mapping = self._maps.get(part.sha256)
            if mapping is None:
                mapping = self._maps[part.sha256] = _Map(self._checked(part), part.size)
            return memoryview(mapping)

    def put(self, data: Iterable[Buffer]) -> Part:
        """Store data that arrives in chunks."""
        pieces = list(data)
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        part = Part(digest.hexdigest(), sum(map(len, pieces)))
        self._write(part, pieces)
        return part

    def keep(self, part: Part, data: Buffer) -> memoryview:
        """Store data with a known digest and return a view of the stored object."""
        if not is_mapped(data):
            self._write(part, [data])
        return self.view(part)

    def take(self, path: Path) -> Part:
        """Move a finished file of a work directory into the cache."""
        part = Part(self._files.digest(path), path.stat().st_size)
        self.adopt(part, path)
        return part

    def adopt(self, part: Part, path: Path) -> None:
        """Move a file with known content into the cache."""
        target = self.path(part.sha256)
        try:
            _move(path, target)
        except OSError as error:
            raise unwritable(error, target.parent) from error
        self._files.note(target, part.sha256)

    def place(self, part: Part, target: Path) -> None:
        """Write the content of an object to ``target``."""
        place(self._checked(part), target)

    def assemble(self, index: Part) -> Iterator[memoryview]:
        """Yield the chunks of the file that an index describes."""
        for piece in read_between(self.view(index), self._named(index)):
            if isinstance(piece, Part):
                view = self.view(piece)
                yield view
                _let_go(view.obj)
            else:
                yield piece

    def assembled_size(self, index: Part) -> int:
        """Return the size of the file that an index describes."""
        pieces = read_between(self.view(index), self._named(index))
        return sum(piece.size if isinstance(piece, Part) else len(piece) for piece in pieces)

    def mapped_bytes(self) -> int:
        """Return the total size of all currently mapped objects."""
        with self._lock:
            return sum(map(len, self._maps.values()))

    def let_go(self) -> None:
        """Release the memory of mapped objects; the system reads them again on access."""
        with self._lock:
            maps = list(self._maps.values())
        for mapped in maps:
            _let_go(mapped)

    def parts(self, index: Part) -> tuple[Part, ...]:
        """Return the objects that an index names, in order."""
        return read_index(self.view(index), self._named(index))[0]

    def _named(self, part: Part) -> str:
        return str(self.path(part.sha256))

    def _checked(self, part: Part) -> Path:
        path = self.path(part.sha256)
        if not self.holds(part):
            message = "the store's object is missing or damaged"
            raise CorruptFileError(message, _GONE_HINT, str(path))
        return path

    def _write(self, part: Part, pieces: Sequence[Buffer]) -> None:
        if self.holds(part):
            return
        path = self.path(part.sha256)
        try:
            write_new(str(path), pieces)
        except OSError:  # only on failure, because a graph may have hundreds of tensors
            _write_file(path, pieces)
        self._files.note(path, part.sha256)


def _let_go(mapped: object) -> None:
    if isinstance(mapped, _Map):
        release_pages(mapped)


def _move(path: Path, target: Path) -> None:
    try:
        path.replace(target)
    except FileNotFoundError:
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)


def is_mapped(data: object) -> bool:
    """Return whether data is a view of a mapped object of a cache."""
    return isinstance(data, memoryview) and isinstance(data.obj, _Map)


class _Map(mmap.mmap):
    def __new__(cls, path: Path, size: int) -> _Map:
        """Map ``size`` bytes of a file read-only."""
        try:
            with path.open("rb") as stream:
                return super().__new__(cls, stream.fileno(), size, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            reason = error if isinstance(error, OSError) else OSError(str(error))
            raise unreadable(path, reason) from error


def _write_file(path: Path, pieces: Sequence[Buffer]) -> None:
    """Write a file of the cache, and create its directory if it is missing."""
    try:
        write_bytes(path, iter(pieces), follow=False)
    except ArtifactError as error:
        raise ArtifactError(error.message, HINT, error.where) from error


def unwritable(error: OSError, folder: Path) -> ArtifactError:
    """Create the error for a cache that cannot be written."""
    reason = error.strerror or str(error)
    return ArtifactError(f"the store cannot be written: {reason}", HINT, str(folder))
