"""Outputs and records of stages, and the work directories that stages write to."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import shutil
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from mobileprep.core.files import sha256_bytes
from mobileprep.formats.parts import Part

_DIGEST: Final = re.compile(r"[0-9a-f]{64}\Z")
# Maximum length of a file name in any file system.
_LONGEST_NAME: Final = 255


class Output(Struct, frozen=True):
    """An output of a stage.

    Args:
        sha256: digest of its content; for a graph, the digest of its index.
        size: size in bytes; for a graph, the size of its index.
        index: index of its parts, or None if it is a single object or inline text.
        text: content of a short JSON output, stored in the record.
    """

    sha256: str
    size: int
    index: Part | None = None
    text: str | None = None

    @property
    def part(self) -> Part | None:
        """The first object that the output needs, or None if it is inline text."""
        if self.text is not None:
            return None
        return self.index or Part(self.sha256, self.size)


class Record(Struct, frozen=True):
    """The record of one run of a stage.

    Args:
        components: components of its fingerprint.
        outputs: its outputs by name.
        seconds: duration of the run.
    """

    components: Mapping[str, Any]
    outputs: Mapping[str, Output]
    seconds: float

    @property
    def bytes(self) -> int:
        """The total size of all outputs."""
        return sum(output.size for output in self.outputs.values())


class LastRun(Struct, frozen=True):
    """A task's last run, to explain changes and to estimate the cost of the next run.

    Args:
        components: components of its fingerprint.
        seconds: duration of the run.
        bytes: total size of its outputs.
    """

    components: Mapping[str, Any]
    seconds: float
    bytes: int


def record_data(record: Record) -> dict[str, Any]:
    """Convert a record to JSON-compatible data."""
    return {
        "components": record.components,
        "outputs": {name: _output_data(out) for name, out in record.outputs.items()},
        "seconds": record.seconds,
    }


def last_run_data(record: Record) -> dict[str, Any]:
    """Convert the summary of a run to JSON-compatible data."""
    return {"components": record.components, "seconds": record.seconds, "bytes": record.bytes}


def last_run_from(data: object) -> LastRun | None:
    """Parse the data of ``last_run_data``; return None if it is invalid."""
    try:
        components, seconds = data["components"], _seconds(data["seconds"])  # type: ignore[index]
        return LastRun(dict(components), seconds, int(data["bytes"]))  # type: ignore[index]
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _seconds(value: Any) -> float:  # noqa: ANN401 - JSON
    seconds = float(value)
    if not 0 <= seconds < math.inf:
        message = "no time that anything takes"
        raise ValueError(message)
    return seconds


def _output_data(output: Output) -> dict[str, Any]:
    data: dict[str, Any] = {"sha256": output.sha256, "size": output.size}
    if output.index is not None:
        data["index"] = {"sha256": output.index.sha256, "size": output.index.size}
    if output.text is not None:
        data["text"] = output.text
    return data


def record_from(data: object) -> Record | None:
    """Parse the data of ``record_data``; return None if it is invalid."""
    try:
        outputs = {_name(k): _output(v) for k, v in data["outputs"].items()}  # type: ignore[index]
        components, seconds = data["components"], _seconds(data["seconds"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None
    return Record(components, outputs, seconds) if isinstance(components, dict) else None


def _output(data: Mapping[str, Any]) -> Output:
    part = _part(data)
    index = _part(data["index"]) if "index" in data else None
    text = data.get("text")
    if text is not None and Part(sha256_bytes(text.encode()), len(text.encode())) != part:
        message = "a text that is not that of its digest"
        raise ValueError(message)
    if index is not None and index.sha256 == part.sha256 and index != part:
        message = "a graph of two lengths"
        raise ValueError(message)
    return Output(part.sha256, part.size, index, text)


def _name(name: str) -> str:
    """Check that an output name is a valid relative path."""
    for part in name.split("/"):
        if part in ("", ".", "..") or "\0" in part or len(part.encode()) > _LONGEST_NAME:
            message = "no name of an output"
            raise ValueError(message)
    return name


def _part(data: Mapping[str, Any]) -> Part:
    sha256, size = data["sha256"], data["size"]
    is_size = type(size) is int and size >= 0
    if not isinstance(sha256, str) or not _DIGEST.match(sha256) or not is_size:
        message = "no output of a record"
        raise TypeError(message)
    return Part(sha256, size)


_NAME = re.compile(r"([0-9]{1,10})-([0-9a-f]{12})-([0-9]{1,20})-[0-9a-f]{16}")
# Work directories of other machines or of earlier boots are judged by age only.
_ABANDONED_SECONDS = 24 * 3600
_PROC = Path("/proc")
_UNKNOWN = "0" * 12


def workspace_name() -> str:
    """Return a new name with the process ID, the system, the start time, and a random suffix."""
    return f"{_process(os.getpid())}-{os.urandom(8).hex()}"


def sweep(folder: Path) -> int:
    """Remove the work directories that no process uses, and return their number.

    Several processes may call this at once. Directories that cannot be removed are skipped.
    """
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return 0
    return sum(_remove(path) for path in paths if _is_left(path))


def _is_left(path: Path) -> bool:
    name = _NAME.fullmatch(path.name)
    if name is not None and name[2] == _system() != _UNKNOWN:
        return _started(int(name[1])) != int(name[3])
    # The process may be active in another container or on another machine: require inactivity.
    try:
        inside = list(path.iterdir()) if path.is_dir() and not path.is_symlink() else []
        changed = max(each.lstat().st_mtime for each in (path, *inside))
    except OSError:
        return False  # in use, or already removed
    # A time in the future proves only that the directory was not changed recently.
    return abs(time.time() - changed) > _ABANDONED_SECONDS


def _remove(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
    return not path.exists()


@lru_cache(maxsize=1)
def _process(pid: int) -> str:
    """Return the name prefix of this process; a forked process has a different one."""
    return f"{pid}-{_system()}-{_started(pid) or 0}"


@lru_cache(maxsize=1)
def _system() -> str:
    """Return a digest of this boot and container, within which process IDs are unique."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_bytes()
        container = os.fsencode((_PROC / "self/ns/pid").readlink())
    except OSError:
        return _UNKNOWN
    return hashlib.sha256(boot + container).hexdigest()[: len(_UNKNOWN)]


def _started(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it is not running."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[19])  # field 22 of proc(5); the program name may contain anything
    except (OSError, ValueError, IndexError):
        return None
