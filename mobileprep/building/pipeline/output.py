"""Outputs and records of stages, and the work directories that stages write to."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta, Struct, ValidationError, convert

from mobileprep.core.files import sha256_bytes
from mobileprep.formats.parts import Digest, Part

# Maximum length of a file name in any file system.
_LONGEST_NAME: Final = 255
_ABANDONED_SECONDS: Final = 24 * 3600

Size = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0, lt=1e18)]


class Output(Struct, frozen=True, omit_defaults=True):
    """An output of a stage.

    Args:
        sha256: digest of its content; for a graph, the digest of its index.
        size: size in bytes; for a graph, the size of its index.
        index: index of its parts, or None if it is a single object or inline text.
        text: content of a short JSON output, stored in the record.
    """

    sha256: Digest
    size: Size
    index: Part | None = None
    text: str | None = None

    @property
    def part(self) -> Part | None:
        """The first object that the output needs, or None if it is inline text."""
        if self.text is not None:
            return None
        return self.index or Part(self.sha256, self.size)

    @property
    def is_consistent(self) -> bool:
        """Whether the digests and sizes of a parsed output agree."""
        if self.text is not None:
            data = self.text.encode("utf-8", "surrogatepass")
            return (sha256_bytes(data), len(data)) == (self.sha256, self.size)
        return self.index is None or self.index.sha256 != self.sha256 or self.index == self.part


class Record(Struct, frozen=True):
    """The record of one run of a stage.

    Args:
        components: components of its fingerprint.
        outputs: its outputs by name.
        seconds: duration of the run.
    """

    components: dict[str, Any]
    outputs: dict[str, Output]
    seconds: Seconds

    @property
    def summary(self) -> LastRun:
        """What explains later changes of the task."""
        size = sum(output.size for output in self.outputs.values())
        return LastRun(self.components, self.seconds, size)


class LastRun(Struct, frozen=True):
    """A task's last run, to explain changes and to estimate the cost of the next run.

    Args:
        components: components of its fingerprint.
        seconds: duration of the run.
        bytes: total size of its outputs.
    """

    components: dict[str, Any]
    seconds: Seconds
    bytes: Size


def record_from(data: object) -> Record | None:
    """Parse a record; return None if it is invalid."""
    try:
        record = convert(data, Record)
    except ValidationError:
        return None
    outputs = record.outputs.items()
    return record if all(_is_name(n) and o.is_consistent for n, o in outputs) else None


def last_run_from(data: object) -> LastRun | None:
    """Parse the summary of a run; return None if it is invalid."""
    try:
        return convert(data, LastRun)
    except ValidationError:
        return None


def _is_name(name: str) -> bool:
    """Return whether an output name is a valid relative path."""
    parts = name.split("/")
    return "\0" not in name and all(
        part not in ("", ".", "..") and len(os.fsencode(part)) <= _LONGEST_NAME for part in parts
    )


def workspace_name() -> str:
    """Return a new name for a work directory or a temporary file."""
    return os.urandom(16).hex()


def sweep(folder: Path) -> int:
    """Remove the work directories that killed processes left a day ago, and return their number.

    Several processes may call this at once. Directories that cannot be removed are skipped.
    """
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return 0
    return sum(_remove(path) for path in paths if _is_abandoned(path))


def _is_abandoned(path: Path) -> bool:
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
