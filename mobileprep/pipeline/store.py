"""The store: what stages left, by their fingerprints, and the objects that hold it.

A record has its own digest and its key in it: one that was edited, or put under another key, counts
as gone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mobileprep.core.files import atomic_writer, read_file, sha256_bytes, write_bytes
from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.formats.parts import Part, read_index
from mobileprep.pipeline.checked import seal, unseal
from mobileprep.pipeline.eviction import Evicted, evict, mark_used
from mobileprep.pipeline.file_index import FileIndex
from mobileprep.pipeline.file_systems import FileSystems
from mobileprep.pipeline.objects import HINT, Objects, unwritable
from mobileprep.pipeline.obstacles import clear_way
from mobileprep.pipeline.output import (
    LastRun,
    Output,
    Record,
    last_run_data,
    last_run_from,
    record_data,
    record_from,
)
from mobileprep.pipeline.store_folder import FORMAT
from mobileprep.pipeline.upkeep import Upkeep
from mobileprep.pipeline.workspaces import workspace_name

if TYPE_CHECKING:
    from mobileprep.pipeline.remote.base import Remote
    from mobileprep.pipeline.sharing import Sharing

# No record is longer.
_MOST_RECORD: Final = 64 << 20
INLINE = 64 << 10
"""Outputs of at most so many bytes that are JSON stand in the record itself."""


class Store:
    """The store in one folder. Several builds may use it at once: every write is atomic.

    Args:
        folder: where it is.
        files: tells whether files still have the bytes that they had; by default it hashes them.
        remote: a store that machines share, for what this one lacks.
    """

    def __init__(
        self, folder: Path, files: FileIndex | None = None, remote: Remote | None = None
    ) -> None:
        self.root = folder
        """Where stores of all formats lie."""
        self.folder = folder / FORMAT
        self.files = files or FileIndex(None)
        self.objects = Objects(self.folder, self.files)
        self._systems = FileSystems()
        self._upkeep = Upkeep(self.folder)
        self._fetching = threading.Lock()
        # What is stale is judged again and again; the remote store is asked once for each.
        self._nowhere: set[str] = set()
        # What indexes name that are in the remote store alone.
        self._named_there: dict[Part, tuple[Part, ...]] = {}
        self._asking = threading.Lock()
        self.sharing: Sharing | None = None
        if remote is not None:
            # Only now: few builds share a store.
            from mobileprep.pipeline.sharing import Sharing

            self.sharing = Sharing(remote, self.folder)

    def holds(self, output: Output) -> bool:
        """Whether all that an output is made of is here, its bytes those of their digests."""
        return not self.objects.absent(self.parts(output)) and self._fits(output)

    def missing(self, output: Output) -> frozenset[str]:
        """The digests of the objects that an output needs, and that cannot be had.

        They are missing or damaged here, and the remote store does not have them. Its word is
        taken for all but indexes, which are fetched. Of an index that is missing only its own:
        what it names is not known then.
        """
        absent = self.objects.absent(self.parts(output))
        if output.part is not None and not absent and not self._fits(output):
            return frozenset((output.part.sha256,))
        if absent and self.sharing is not None:
            absent = self._absent_there(output, absent, self.sharing)
        return frozenset(part.sha256 for part in absent)

    def obtain(self, output: Output) -> bool:
        """Make sure that all that an output is made of is here; whether it is.

        What is here has the bytes of its digests. What is not comes from the remote store.
        """
        known = self.parts(output)
        if not self._fetch(known):
            return False
        # Of an index that was not here, the second round fetches what it names.
        named = self.parts(output)
        return (named == known or self._fetch(named)) and self._fits(output)

    def fetch(self, outputs: Iterable[Output]) -> None:
        """Take what several outputs lack from the remote store at once, as far as it has that."""
        if self.sharing is not None:
            listed = list(outputs)
            for _ in range(2):  # indexes, then what they name
                self._fetch(part for output in listed for part in self.parts(output))

    def share(self, fingerprint: str, record: Record) -> None:
        """Send what a stage has left to the remote store, in the background, where there is one."""
        if self.sharing is None:
            return
        parts = {part for output in record.outputs.values() for part in self.parts(output)}
        found = sorted((part.sha256, self.objects.path(part.sha256)) for part in parts)
        with self._asking:
            self._nowhere.discard(fingerprint)
        self.sharing.send(fingerprint, self._path("ac", fingerprint), found)

    def parts(self, output: Output) -> tuple[Part, ...]:
        """The objects that an output needs, as far as they are known: see ``missing``."""
        if output.part is None:
            return ()
        if output.index is None:
            return (output.part,)
        try:
            return (output.part, *self.objects.parts(output.index))
        except CorruptFileError:
            return (output.part,)

    def needed(self, output: Output) -> tuple[Part, ...] | None:
        """All objects that an output needs; None where its index is nowhere.

        An index of the remote store is known by what ``missing`` has read of it.
        """
        if output.index is None or self.objects.holds(output.index):
            return self.parts(output)
        named = self._named_there.get(output.index)
        return None if named is None else (*self.parts(output), *named)

    def _absent_there(self, output: Output, absent: list[Part], sharing: Sharing) -> list[Part]:
        """The objects that an output needs, and that the remote store lacks as this one does."""
        if output.index in absent:
            named = _parts_there(output.index, sharing)
            if named is None:
                return [output.index]
            self._named_there[output.index] = named
            absent = self.objects.absent(named)
        found = sharing.has(absent)
        return [part for part, is_there in zip(absent, found, strict=True) if not is_there]

    def _fits(self, output: Output) -> bool:
        """Whether an output whose objects are here has the length that its record tells."""
        if output.index is None or output.index.sha256 == output.sha256:
            return True  # that of its object, which is looked at with its digest
        try:
            return self.objects.assembled_size(output.index) == output.size
        except CorruptFileError:
            return False

    def _fetch(self, parts: Iterable[Part]) -> bool:
        """Make sure that objects are here; whether they all are."""
        missing = self.objects.absent(parts)
        if not missing or self.sharing is None:
            return not missing
        # Targets that are finished at once often need the same: the first fetches it for all.
        with self._fetching, self.sharing.objects(missing := self.objects.absent(missing)) as files:
            # A record may tell another length than that of the object.
            fitting = [
                file if file is not None and file.stat().st_size == part.size else None
                for part, file in zip(missing, files, strict=True)
            ]
            for part, file in zip(missing, fitting, strict=True):
                if file is not None:
                    self.objects.adopt(part, file)
            return None not in fitting

    def workspace(self) -> Path:
        """A new folder inside the store, with a folder ``left`` for what a stage leaves and one
        ``read`` for what it reads; the caller removes it.

        Raises:
            ArtifactError: the store cannot be written.
        """
        folder = self.folder / "tmp" / workspace_name()
        try:
            clear_way(folder, self.folder)
            for name in ("left", "read"):
                (folder / name).mkdir(parents=True)
        except OSError as error:
            raise unwritable(error, folder.parent) from error
        return folder

    def take(self, path: Path, *, inline: bool = False) -> Output:
        """Take a finished file of a workspace into the store, ``inline`` into the record itself.

        Raises:
            ArtifactError: the store cannot be written.
        """
        if inline and path.stat().st_size <= INLINE:
            data = path.read_bytes()
            return Output(sha256_bytes(data), len(data), text=data.decode())
        part = self.objects.take(path)
        return Output(part.sha256, part.size)

    def pieces(self, output: Output) -> Iterator[bytes | memoryview]:
        """The bytes of an output, in pieces; of a graph, those of its index.

        Raises:
            CorruptFileError: an object is not there, or damaged.
        """
        if output.text is not None:
            yield output.text.encode()
        elif output.index is not None and output.index.sha256 != output.sha256:
            yield from self.objects.assemble(output.index)
        else:
            yield self.objects.view(Part(output.sha256, output.size))

    def blocks(self, output: Output) -> Iterator[bytes | memoryview]:
        """The same bytes to be written, each piece there until the next is asked for."""
        if output.index is not None and output.index.sha256 != output.sha256:
            yield from self.objects.assemble_blocks(output.index)
        else:
            yield from self.pieces(output)

    def publish(self, output: Output, target: Path) -> None:
        """Give ``target`` an output's bytes.

        Raises:
            CorruptFileError: an object is not there, or damaged.
            ArtifactError: the target cannot be written.
        """
        if output.index is None and output.text is None:
            self.objects.place(Part(output.sha256, output.size), target)
        else:
            with atomic_writer(target, follow=False) as stream:
                self._systems.reserve(stream.fileno(), str(target), output.size)
                stream.writelines(self.blocks(output))
        self.files.note(target, output.sha256)

    def load(self, fingerprint: str) -> Record | None:
        """The record of that fingerprint; None where there is none, or it cannot be read."""
        record = self._own_record(fingerprint)
        if record is not None or self.sharing is None or fingerprint in self._nowhere:
            return record
        with self._asking:
            # Another thread may have fetched it while this one waited.
            record = self._own_record(fingerprint)
            if record is None and fingerprint not in self._nowhere:
                record = self._shared_record(fingerprint, self.sharing)
                if record is None:
                    self._nowhere.add(fingerprint)
        return record

    def references(self, path: Path) -> list[str]:
        """The digests of all objects that the record in a file needs, its indexes' included.

        Raises:
            CorruptFileError: it is no record, or an index is missing or damaged.
        """
        record = record_from(self._json("ac", path.stem))
        if record is None:
            message = "is no record"
            hint = "'mobileprep cache verify' removes what is damaged"
            raise CorruptFileError(message, hint, str(path))
        parts = [o.part for o in record.outputs.values() if o.part is not None]
        indexes = [o.index for o in record.outputs.values() if o.index is not None]
        inner = [part for index in indexes for part in self.objects.parts(index)]
        return [part.sha256 for part in (*parts, *inner)]

    def record_file(self, fingerprint: str) -> Path:
        """Where the record of that fingerprint lies, or would."""
        return self._path("ac", fingerprint)

    def is_record(self, path: Path) -> bool:
        """Whether a file is a record, whole and under its own name."""
        found = record_from(self._json("ac", path.stem))
        return found is not None and path == self._path("ac", path.stem)

    def begin(self) -> None:
        """Say that this run needs what the store holds: nothing is cleared until its end."""
        self._upkeep.begin()

    def finish(self, limit: int | None) -> None:
        """End a run: where it has begun to use the store, that is held to a number of bytes."""
        self._upkeep.end(limit, self.objects.written_bytes, self.references)

    def collect(self, limit: int) -> Evicted:
        """Bring the store down to a number of bytes; the caller has it alone.

        Raises:
            CorruptFileError: it cannot be read.
        """
        done = evict(self.folder, limit, self.references)
        with contextlib.suppress(ArtifactError):  # only counted anew by the next build
            self._upkeep.counted(done.left_bytes)
        return done

    def save(self, fingerprint: str, record: Record) -> None:
        """Keep a record.

        Raises:
            ArtifactError: the store cannot be written.
        """
        self._write("ac", fingerprint, record_data(record))

    def drop(self, fingerprint: str) -> None:
        """Remove a record that makes no sense, where it can be removed."""
        with contextlib.suppress(OSError):
            self._path("ac", fingerprint).unlink()

    def last_run(self, task_key: str) -> LastRun | None:
        """A task's last run in this store; None where there was none, or it cannot be read."""
        return last_run_from(self._json("latest", task_key))

    def save_last_run(self, task_key: str, record: Record) -> None:
        """Keep what is told of a task's last run; raises what ``save`` does."""
        self._write("latest", task_key, last_run_data(record))

    def _own_record(self, fingerprint: str) -> Record | None:
        record = record_from(self._json("ac", fingerprint))
        if record is not None:
            mark_used(self._path("ac", fingerprint))
        return record

    def _shared_record(self, fingerprint: str, sharing: Sharing) -> Record | None:
        """A record of the remote store, kept here from now on."""
        with sharing.record(fingerprint, _MOST_RECORD) as file:
            if file is None:
                return None
            data = read_file(file, limit=_MOST_RECORD)
            record = record_from(unseal(fingerprint, data))
            if record is not None:
                # A store that cannot be written says so when a stage has run.
                with contextlib.suppress(ArtifactError):
                    write_bytes(self._path("ac", fingerprint), data, follow=False)
            return record

    def _path(self, kind: str, key: str) -> Path:
        return self.folder.joinpath(kind, key[:2], f"{key}.json")

    def _write(self, kind: str, key: str, data: object) -> None:
        path = self._path(kind, key)
        try:
            clear_way(path, self.folder)
            write_bytes(path, seal(key, data), follow=False)
        except OSError as error:
            raise unwritable(error, path.parent) from error
        except ArtifactError as error:
            raise ArtifactError(error.message, HINT, error.where) from error

    def _json(self, kind: str, key: str) -> object:
        try:
            return unseal(key, read_file(self._path(kind, key), limit=_MOST_RECORD))
        except CorruptFileError:
            # A record that is gone or damaged only means that the stage runs again.
            return None


def _parts_there(index: Part, sharing: Sharing) -> tuple[Part, ...] | None:
    """The objects that an index of the remote store names; None where it cannot be had."""
    with sharing.objects([index]) as (file,):
        if file is None:
            return None
        try:
            data = read_file(file, limit=index.size)
            return read_index(data, str(file))[0] if len(data) == index.size else None
        except CorruptFileError:
            return None
