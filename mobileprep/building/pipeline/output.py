"""What stages left, as records have it."""

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
# No file system takes longer ones.
_LONGEST_NAME: Final = 255


class Output(Struct, frozen=True):
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


class Record(Struct, frozen=True):
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


class LastRun(Struct, frozen=True):
    """A task's last run, to explain what has changed and to foretell what a run takes.

    Args:
        components: what its fingerprint was made of.
        seconds: how long it took.
        bytes: the length of all that it left.
    """

    components: Mapping[str, Any]
    seconds: float
    bytes: int


def record_data(record: Record) -> dict[str, Any]:
    """A record as JSON can hold it."""
    return {
        "components": record.components,
        "outputs": {name: _output_data(out) for name, out in record.outputs.items()},
        "seconds": record.seconds,
    }


def last_run_data(record: Record) -> dict[str, Any]:
    """What is told of a record's run later, as JSON can hold it."""
    return {"components": record.components, "seconds": record.seconds, "bytes": record.bytes}


def last_run_from(data: object) -> LastRun | None:
    """What ``last_run_data`` gave; None for anything else."""
    try:
        components, seconds = data["components"], _seconds(data["seconds"])  # type: ignore[index]
        return LastRun(dict(components), seconds, int(data["bytes"]))  # type: ignore[index]
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def _seconds(found: Any) -> float:  # noqa: ANN401 - JSON
    seconds = float(found)
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
    """The record that ``record_data`` gave; None for anything else."""
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
    """A name that a stage may give what it leaves: one that files have, below its folder."""
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
# What a process of another machine or of an earlier boot left is told by its age alone.
_ABANDONED_SECONDS = 24 * 3600
_PROC = Path("/proc")
_UNKNOWN = "0" * 12


def workspace_name() -> str:
    """A new name that tells which process it belongs to: number, system, start, and chance."""
    return f"{_process(os.getpid())}-{os.urandom(8).hex()}"


def sweep(folder: Path) -> int:
    """Remove the workspaces of a folder that no process works in, and count them.

    Several processes may do so at once. What cannot be removed stays.
    """
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return 0
    return sum(_remove(path) for path in found if _is_left(path))


def _is_left(path: Path) -> bool:
    name = _NAME.fullmatch(path.name)
    if name is not None and name[2] == _system() != _UNKNOWN:
        return _started(int(name[1])) != int(name[3])
    # A process of another container or machine may be at work: only what rests is left.
    try:
        inside = list(path.iterdir()) if path.is_dir() and not path.is_symlink() else []
        changed = max(each.lstat().st_mtime for each in (path, *inside))
    except OSError:
        return False  # it is being worked in, or removed
    # Of a time that is yet to come nothing is known, but that it was not noted of late.
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
    """What the names of this process begin with; one that was forked has another number."""
    return f"{pid}-{_system()}-{_started(pid) or 0}"


@lru_cache(maxsize=1)
def _system() -> str:
    """A digest of this boot of this machine, and of the container: where process numbers hold."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_bytes()
        container = os.fsencode((_PROC / "self/ns/pid").readlink())
    except OSError:
        return _UNKNOWN
    return hashlib.sha256(boot + container).hexdigest()[: len(_UNKNOWN)]


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where there is none."""
    try:
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[19])  # the 22nd field of proc(5); a program's name may hold anything
    except (OSError, ValueError, IndexError):
        return None
