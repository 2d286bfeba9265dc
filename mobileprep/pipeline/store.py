"""The store: what stages left, by their fingerprints, and the objects that hold it.

A record has its own digest and its key in it: one that was edited, or put under another key, counts
as gone.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.formats.parts import Part
from mobileprep.fsio import atomic_writer, read_bytes, sha256_bytes, write_bytes
from mobileprep.pipeline.checked import seal, unseal
from mobileprep.pipeline.eviction import mark_used
from mobileprep.pipeline.file_index import FileIndex
from mobileprep.pipeline.objects import HINT, Objects, unwritable
from mobileprep.pipeline.workspaces import sweep, workspace_name

if TYPE_CHECKING:
    from mobileprep.pipeline.remote.base import Remote
    from mobileprep.pipeline.sharing import Sharing

_FORMAT = "v2"
MOST_RECORD: Final = 64 << 20
"""No record is longer."""
_CLEAR_HINT = "'mobileprep cache verify' removes what is damaged"
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
INLINE = 64 << 10
"""Outputs of at most so many bytes that are JSON stand in the record itself."""


@dataclass(frozen=True)
class Output:
    """Something that a stage left.

    Args:
        sha256: of a graph, that of its index; of all else that of its bytes.
        size: its length in bytes; of a graph, the index's.
        index: the index that tells what it is made of; None for what is one object or stands here.
        text: its bytes themselves, where they are short and JSON.
    """

    sha256: str
    size: int
    index: Part | None = None
    text: str | None = None

    @property
    def part(self) -> Part | None:
        """The first object that is needed for it, None where none is."""
        if self.text is not None:
            return None
        return self.index or Part(self.sha256, self.size)


@dataclass(frozen=True)
class Record:
    """What is kept of one run of a stage.

    Args:
        components: what the fingerprint was made of.
        outputs: what it left, by name.
        seconds: how long it took.
    """

    components: Mapping[str, Any]
    outputs: Mapping[str, Output]
    seconds: float

    @property
    def bytes(self) -> int:
        """The length of all outputs together."""
        return sum(output.size for output in self.outputs.values())


@dataclass(frozen=True)
class LastRun:
    """A task's last run, to explain what has changed and to foretell what a run takes.

    Args:
        components: what its fingerprint was made of.
        seconds: how long it took.
        bytes: the length of all that it left.
    """

    components: Mapping[str, Any]
    seconds: float
    bytes: int


def default_folder() -> Path:
    """``MOBILEPREP_CACHE``, or ``~/.cache/mobileprep``."""
    named = os.environ.get("MOBILEPREP_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "mobileprep"


def open_store(
    folder: Path, out: Path | None = None, remote: Remote | None = None, *, checksum: bool = False
) -> Store:
    """The store in a folder.

    Args:
        folder: where it is.
        out: the output folder of the builds that use it: for each, the store knows which files
            it has hashed, and need not hash again.
        remote: a store that machines share.
        checksum: hash every file all the same.
    """
    index = None
    if out is not None:
        key = sha256_bytes(os.fsencode(os.path.realpath(out)))
        index = folder / _FORMAT / "seen" / f"{key}.json"
    return Store(folder, FileIndex(index, checksum=checksum), remote)


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
        self.folder = folder / _FORMAT
        self.files = files or FileIndex(None)
        self.objects = Objects(self.folder, self.files)
        self.sharing: Sharing | None = None
        if remote is not None:
            # Only now: few builds share a store.
            from mobileprep.pipeline.sharing import Sharing

            self.sharing = Sharing(remote, self.folder)

    def has(self, output: Output) -> bool:
        """Whether all that an output is made of can be had, here or from the remote store."""
        part = output.part
        if part is None:
            return True
        missing = [p for p in self._known_parts(output) if not self.objects.holds(p)]
        return not missing or (self.sharing is not None and self.sharing.has(missing))

    def obtain(self, output: Output) -> bool:
        """Make sure that all that an output is made of is here; whether it is.

        What is here has the bytes of its digests. What is not comes from the remote store.
        """
        part = output.part
        if part is None:
            return True
        if not self._fetch([part]):
            return False
        if output.index is None:
            return True
        try:
            return self._fetch(self.objects.parts(output.index))
        except CorruptFileError:
            return False

    def share(self, fingerprint: str, record: Record) -> None:
        """Send what a stage has left to the remote store, in the background, where there is one."""
        if self.sharing is None:
            return
        parts = {p for o in record.outputs.values() for p in self._known_parts(o)}
        found = sorted((p.sha256, self.objects.path(p.sha256)) for p in parts)
        self.sharing.send(fingerprint, self._path("ac", fingerprint), found)

    def _known_parts(self, output: Output) -> set[Part]:
        """The objects that an output is made of, as far as that is known here."""
        if output.part is None:
            return set()
        parts = {output.part}
        if output.index is not None and self.objects.holds(output.index):
            with contextlib.suppress(CorruptFileError):
                parts.update(self.objects.parts(output.index))
        return parts

    def _fetch(self, parts: Iterable[Part]) -> bool:
        """Make sure that objects are here; whether they all are."""
        missing = [part for part in {*parts} if not self.objects.holds(part)]
        if not missing or self.sharing is None:
            return not missing
        with self.sharing.objects(missing) as files:
            for part, file in zip(missing, files, strict=True):
                if file is not None:
                    self.objects.adopt(part, file)
            return None not in files

    def workspace(self) -> Path:
        """A new folder inside the store, with a folder ``left`` for what a stage leaves and one
        ``read`` for what it reads; the caller removes it.

        Raises:
            ArtifactError: the store cannot be written.
        """
        folder = self.folder / "tmp" / workspace_name()
        try:
            for name in ("left", "read"):
                (folder / name).mkdir(parents=True)
        except OSError as error:
            raise unwritable(error, folder.parent) from error
        return folder

    def take(self, path: Path, *, inline: bool = False) -> Output:
        """Take a finished file of a workspace into the store.

        Args:
            path: the file.
            inline: whether it may stand in the record.

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
                stream.writelines(self.pieces(output))
        self.files.note(target, output.sha256)

    def load(self, fingerprint: str) -> Record | None:
        """The record of that fingerprint; None where there is none, or it cannot be read."""
        record = _record(self._json("ac", fingerprint))
        if record is not None:
            mark_used(self._path("ac", fingerprint))
        elif self.sharing is not None:
            record = self._shared_record(fingerprint, self.sharing)
        return record

    def references(self, path: Path) -> list[str]:
        """The digests of all objects that a record needs, those that its indexes name included.

        Args:
            path: the record's file.

        Raises:
            CorruptFileError: it is no record, or an index is missing or damaged.
        """
        record = _record(self._json("ac", path.stem))
        if record is None:
            message = "is no record"
            raise CorruptFileError(message, _CLEAR_HINT, str(path))
        parts = [o.part for o in record.outputs.values() if o.part is not None]
        indexes = [o.index for o in record.outputs.values() if o.index is not None]
        inner = [part for index in indexes for part in self.objects.parts(index)]
        return [part.sha256 for part in (*parts, *inner)]

    def sweep(self) -> None:
        """Remove what processes have left that are gone."""
        sweep(self.folder / "tmp")

    def save(self, fingerprint: str, record: Record) -> None:
        """Keep a record.

        Raises:
            ArtifactError: the store cannot be written.
        """
        data = {
            "components": record.components,
            "outputs": {name: _output_data(out) for name, out in record.outputs.items()},
            "seconds": record.seconds,
        }
        self._write("ac", fingerprint, data)

    def last_run(self, task_key: str) -> LastRun | None:
        """A task's last run in this store; None where there was none, or it cannot be read."""
        data = self._json("latest", task_key)
        try:
            components, seconds = data["components"], float(data["seconds"])  # type: ignore[index]
            return LastRun(dict(components), seconds, int(data["bytes"]))  # type: ignore[index]
        except (KeyError, TypeError, ValueError, OverflowError):
            return None

    def save_last_run(self, task_key: str, record: Record) -> None:
        """Keep what is told of a task's last run; raises what ``save`` does."""
        data = {
            "components": record.components,
            "seconds": record.seconds,
            "bytes": record.bytes,
        }
        self._write("latest", task_key, data)

    def empty(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _shared_record(self, fingerprint: str, sharing: Sharing) -> Record | None:
        """A record of the remote store, kept here from now on."""
        with sharing.record(fingerprint) as file:
            if file is None:
                return None
            data = read_bytes(file, limit=MOST_RECORD)
            record = _record(unseal(fingerprint, data))
            if record is not None:
                write_bytes(self._path("ac", fingerprint), data, follow=False)
            return record

    def _path(self, kind: str, key: str) -> Path:
        return self.folder / kind / key[:2] / f"{key}.json"

    def _write(self, kind: str, key: str, data: object) -> None:
        try:
            write_bytes(self._path(kind, key), seal(key, data), follow=False)
        except ArtifactError as error:
            raise ArtifactError(error.message, HINT, error.where) from error

    def _json(self, kind: str, key: str) -> object:
        try:
            return unseal(key, read_bytes(self._path(kind, key), limit=MOST_RECORD))
        except CorruptFileError:
            # A record that is gone or damaged only means that the stage runs again.
            return None


def _output_data(output: Output) -> dict[str, Any]:
    data: dict[str, Any] = {"sha256": output.sha256, "size": output.size}
    if output.index is not None:
        data["index"] = {"sha256": output.index.sha256, "size": output.index.size}
    if output.text is not None:
        data["text"] = output.text
    return data


def _record(data: object) -> Record | None:
    try:
        outputs = {k: _output(v) for k, v in data["outputs"].items()}  # type: ignore[index]
        components, seconds = data["components"], float(data["seconds"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return Record(components, outputs, seconds) if isinstance(components, dict) else None


def _output(data: Mapping[str, Any]) -> Output:
    part = _part(data)
    index = _part(data["index"]) if "index" in data else None
    text = data.get("text")
    if text is not None and sha256_bytes(text.encode()) != part.sha256:
        message = "a text that is not that of its digest"
        raise ValueError(message)
    return Output(part.sha256, part.size, index, text)


def _part(data: Mapping[str, Any]) -> Part:
    sha256, size = data["sha256"], data["size"]
    if not isinstance(sha256, str) or not _DIGEST.match(sha256) or type(size) is not int:
        message = "no output of a record"
        raise TypeError(message)
    return Part(sha256, size)
