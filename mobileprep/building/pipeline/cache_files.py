"""Small files of the cache: paths, checksums, and time of last use."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Final

from mobileprep.core.files import canonical, sha256_bytes
from mobileprep.errors import UsageError

# Half of the eviction grace period, so that entries used in the last half hour are never evicted.
_MARK_SECONDS: Final = 1800


FORMAT: Final = "v2"
"""Directory of the cache format that this version reads and writes."""


def default_folder() -> Path:
    """Return ``MOBILEPREP_CACHE``, or ``~/.cache/mobileprep`` if it is not set.

    Raises:
        UsageError: the user has no home directory.
    """
    named = os.environ.get("MOBILEPREP_CACHE")
    if named:
        return Path(named)
    try:
        return Path.home() / ".cache" / "mobileprep"
    except RuntimeError as error:
        message = "the user has no home folder, which the store would be in"
        raise UsageError(message, "set MOBILEPREP_CACHE to a folder for the store") from error


def index_file(store: Path, out: Path) -> Path:
    """Return the path of the file index for builds into an output directory."""
    return store / "seen" / f"{sha256_bytes(os.fsencode(os.path.realpath(out)))}.json"


def seal(key: str, data: object) -> bytes:
    """Serialize JSON-compatible data with its key, preceded by the SHA-256 of both."""
    body = canonical({"key": key, "data": data}).encode()
    return sha256_bytes(body).encode() + b"\n" + body


def unseal(key: str, text: bytes) -> object:
    """Return the data that ``seal`` serialized with this key, or None if the content is invalid."""
    digest, _, body = text.partition(b"\n")
    if digest != sha256_bytes(body).encode():
        return None
    try:
        entry = json.loads(body)
        return entry["data"] if entry["key"] == key else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def mark_used(record: Path) -> None:
    """Mark a record or a file index as used now.

    This costs a single ``stat`` if it was marked within the last half hour.
    """
    with contextlib.suppress(OSError):  # removed, or the cache is read-only
        if abs(time.time() - record.stat().st_mtime) > _MARK_SECONDS:
            os.utime(record)
