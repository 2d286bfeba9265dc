"""The content-addressed store: outputs by their digest, records by their fingerprint.

A record is a JSON object of its key, its data, and the digest of both: one that was edited, or put
under another key, counts as gone, like one that an older version left without a digest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.fsio import place, read_bytes, sha256_bytes, sha256_file, write_text
from mobileprep.plan.fingerprints import canonical

_FORMAT = "v1"
_MOST_RECORD = 64 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_HINT = "free space on its disk, or set MOBILEPREP_CACHE to a folder that can be written"


@dataclass(frozen=True)
class Output:
    """A file that a stage left: its digest, and its length in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True)
class Record:
    """What is kept of one run of a stage.

    Args:
        components: what the fingerprint was made of.
        outputs: the files it left, by name.
        seconds: how long it took.
    """

    components: Mapping[str, Any]
    outputs: Mapping[str, Output]
    seconds: float


def default_folder() -> Path:
    """``MOBILEPREP_CACHE``, or ``~/.cache/mobileprep``."""
    named = os.environ.get("MOBILEPREP_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "mobileprep"


class Store:
    """The store in one folder. Several builds may use it at once: every write is atomic."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / _FORMAT

    def object_path(self, digest: str) -> Path:
        """Where the bytes of that digest lie, or would."""
        return self.folder / "objects" / digest[:2] / digest

    def holds(self, output: Output) -> bool:
        """Whether an object is there and its bytes still have its digest."""
        path = self.object_path(output.sha256)
        try:
            if path.stat().st_size != output.size:
                return False
        except OSError:
            return False
        return sha256_file(path) == output.sha256

    def workspace(self) -> Path:
        """A new folder inside the store for a stage to write to; the caller removes it.

        Raises:
            ArtifactError: the store cannot be written.
        """
        folder = self.folder / "tmp" / os.urandom(8).hex()
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise unwritable(error, folder.parent) from error
        return folder

    def take(self, path: Path) -> Output:
        """Move a finished file of a workspace into the store.

        Raises:
            ArtifactError: the store cannot be written.
        """
        output = Output(sha256_file(path), path.stat().st_size)
        target = self.object_path(output.sha256)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        except OSError as error:
            raise unwritable(error, target.parent) from error
        return output

    def publish(self, output: Output, target: Path) -> None:
        """Give ``target`` an object's bytes."""
        place(self.object_path(output.sha256), target)

    def load(self, fingerprint: str) -> Record | None:
        """The record of that fingerprint; None where there is none, or it cannot be read."""
        return _record(self._json("records", fingerprint))

    def save(self, fingerprint: str, record: Record) -> None:
        """Keep a record.

        Raises:
            ArtifactError: the store cannot be written.
        """
        data = {
            "components": record.components,
            "outputs": {name: asdict(out) for name, out in record.outputs.items()},
            "seconds": record.seconds,
        }
        self._write("records", fingerprint, data)

    def latest(self, task_key: str) -> Mapping[str, Any] | None:
        """The components of a task's last run in this store, to explain what has changed."""
        data = self._json("latest", task_key)
        return data if isinstance(data, dict) else None

    def save_latest(self, task_key: str, components: Mapping[str, Any]) -> None:
        """Keep the components of a task's run; raises what ``save`` does."""
        self._write("latest", task_key, components)

    def empty(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, kind: str, key: str) -> Path:
        return self.folder / kind / key[:2] / f"{key}.json"

    def _write(self, kind: str, key: str, data: object) -> None:
        record = {"key": key, "data": data}
        text = canonical({**record, "sha256": _digest(record)})
        try:
            write_text(self._path(kind, key), text, follow=False)
        except ArtifactError as error:
            raise ArtifactError(error.message, _HINT, error.where) from error

    def _json(self, kind: str, key: str) -> object:
        try:
            found = json.loads(read_bytes(self._path(kind, key), limit=_MOST_RECORD))
            data = found["data"]
            whole = found["sha256"] == _digest({"key": key, "data": data})
        except (CorruptFileError, ValueError, KeyError, TypeError, RecursionError):
            # A record that is gone or damaged only means that the stage runs again.
            return None
        return data if whole else None


def _digest(record: Mapping[str, object]) -> str:
    return sha256_bytes(canonical(record).encode())


def unwritable(error: OSError, folder: Path) -> ArtifactError:
    """The error for a store that the system would not let us write to."""
    reason = error.strerror or str(error)
    return ArtifactError(f"the store cannot be written: {reason}", _HINT, str(folder))


def _record(data: object) -> Record | None:
    try:
        outputs = {k: _output(v["sha256"], v["size"]) for k, v in data["outputs"].items()}  # type: ignore[index]
        components, seconds = data["components"], float(data["seconds"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return Record(components, outputs, seconds) if isinstance(components, dict) else None


def _output(sha256: object, size: object) -> Output:
    if not isinstance(sha256, str) or not _DIGEST.match(sha256) or type(size) is not int:
        message = "no output of a record"
        raise TypeError(message)
    return Output(sha256, size)
