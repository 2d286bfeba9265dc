"""Small files of the cache: where they are, sealed by a digest, and marked as used."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import time
from pathlib import Path
from typing import Final

from mobileprep.core.files import canonical, sha256_bytes
from mobileprep.errors import UsageError

# Half of the grace of eviction: what a build of the last half hour has used is never evicted.
_MARK_SECONDS: Final = 1800


FORMAT: Final = "v2"
"""Directory of the cache format that this version reads and writes."""


def default_folder() -> Path:
    """``MOBILEPREP_CACHE``, or ``~/.cache/mobileprep``."""
    named = os.environ.get("MOBILEPREP_CACHE")
    if named:
        return Path(named)
    try:
        return Path.home() / ".cache" / "mobileprep"
    except RuntimeError as error:
        message = "the user has no home folder, which the store would be in"
        raise UsageError(message, "set MOBILEPREP_CACHE to a folder for the store") from error


def index_file(store: Path, out: Path) -> Path:
    """Where a store's folder has the index of files of builds into an output folder."""
    return store / "seen" / f"{sha256_bytes(os.fsencode(os.path.realpath(out)))}.json"


def seal(key: str, data: object) -> bytes:
    """JSON-able data that is kept under a key: the sha256 of a JSON text of both, and the text."""
    body = canonical({"key": key, "data": data}).encode()
    return sha256_bytes(body).encode() + b"\n" + body


def unseal(key: str, text: bytes) -> object:
    """The data that ``seal`` was given with that key; None where the text is anything else."""
    digest, _, body = text.partition(b"\n")
    if digest != sha256_bytes(body).encode():
        return None
    try:
        found = json.loads(body)
        return found["data"] if found["key"] == key else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def mark_used(record: Path) -> None:
    """Note that a record, or an index of files, is used now.

    It costs a ``stat`` where that was noted within half an hour.
    """
    with contextlib.suppress(OSError):  # gone, or in a store that is read only
        if abs(time.time() - record.stat().st_mtime) > _MARK_SECONDS:
            os.utime(record)


_TRIES: Final = 3


def clear_way(path: Path, top: Path) -> None:
    """Remove what keeps a file from being written: at its place, and above it below ``top``.

    Files and links at the place itself stay, since writing replaces them.
    """
    for left in reversed(range(_TRIES)):
        try:
            _clear(path, top)
        except (FileNotFoundError, NotADirectoryError):
            # Another build, or thread, clears the same way.
            if not left:
                raise
        else:
            return


def _clear(path: Path, top: Path) -> None:
    for above in reversed(path.relative_to(top).parents[:-1]):
        if os.path.lexists(top / above) and not (top / above).is_dir():
            (top / above).unlink()
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    elif not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        path.unlink()
