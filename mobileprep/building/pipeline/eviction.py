"""Limit the size of the cache by removing the least recently used entries first.

The mtime of a record is its last use. An object is as recent as the newest record that needs it.
The times of objects do not change because the file index depends on them. Any number of builds may
use the cache meanwhile: they recreate missing entries. Entries that were written or used within the
last hour stay because a build may be about to need them.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep.building.pipeline.locks import alone
from mobileprep.core.files import unreadable, write_bytes
from mobileprep.errors import ArtifactError, CorruptFileError, UsageError
from mobileprep.recipe.units import parse_bytes

GRACE_SECONDS = 3600
_PAUSE_SECONDS = 3600
# Notes on tasks and files may use the limit divided by this, in addition to objects and records.
_NOTES_SHARE = 20
_NOTES = ("latest", "seen")
_OBJECT = re.compile(r"[0-9a-f]{64}")
_RECORD = re.compile(r"[0-9a-f]{64}\.json")
# Temporary files of killed processes; complete files are renamed.
_UNFINISHED = re.compile(r"\..{1,80}\.[0-9a-f]{16}", re.DOTALL)
_UNFINISHED_SECONDS = 24 * 3600

References = Callable[[Path], Iterable[str]]


class StoreFacts(Struct, frozen=True):
    """The contents of a cache; times of use are in seconds since 1970, or None without records."""

    objects: int
    object_bytes: int
    records: int
    record_bytes: int
    oldest_use: float | None
    newest_use: float | None


class Evicted(Struct, frozen=True):
    """Numbers of removed entries and bytes, and size of the remaining objects and records."""

    objects: int
    records: int
    removed_bytes: int
    left_bytes: int


class _File(Struct, frozen=True):
    path: Path
    size: int
    changed: float
    """The later of mtime and ctime: a file that was moved here counts as new."""
    used: float
    """The mtime."""


def survey(folder: Path) -> StoreFacts:
    """Summarize the cache directory with ``cas`` and ``ac`` in it."""
    objects = list(_files(folder / "cas", _OBJECT))
    records = list(_files(folder / "ac", _RECORD))
    used = [record.used for record in records]
    return StoreFacts(
        objects=len(objects),
        object_bytes=sum(each.size for each in objects),
        records=len(records),
        record_bytes=sum(each.size for each in records),
        oldest_use=min(used, default=None),
        newest_use=max(used, default=None),
    )


def evict(folder: Path, limit_bytes: int, references: References) -> Evicted:
    """Reduce a cache to a maximum size.

    Objects that no record needs are removed first, then the least recently used records, each with
    the objects that no other record needs.

    Args:
        folder: directory of the cache format.
        limit_bytes: maximum total size of objects and records.
        references: returns the digests of all objects that a record file needs, including indirect
            ones. A CorruptFileError counts as none.
    """
    objects = {file.path.name: file for file in _files(folder / "cas", _OBJECT)}
    records = _oldest_first(_files(folder / "ac", _RECORD))
    work = _Removal(sum(file.size for file in (*objects.values(), *records)))
    if work.left > limit_bytes:
        needs = {record: _needs(record, references) for record in records}
        users = Counter(digest for digests in needs.values() for digest in digests)
        unneeded = (file for digest, file in objects.items() if digest not in users)
        for file in sorted(unneeded, key=lambda file: file.changed):
            if work.left > limit_bytes:
                work.remove(file, file.changed, "objects")
        for record in records:
            # Remove the record before its objects, so that existing records stay complete.
            if work.left > limit_bytes and work.remove(record, record.used, "records"):
                users.subtract(needs[record])
                mine = [objects[d] for d in sorted(needs[record] & objects.keys()) if not users[d]]
                for file in mine:
                    work.remove(file, file.changed, "objects")
    counts = work.counts
    return Evicted(counts["objects"], counts["records"], counts["bytes"], work.left)


class _Removal:
    """Removes files, and counts removed and remaining bytes."""

    def __init__(self, size: int) -> None:
        self.left = size
        self.counts: Counter[str] = Counter()

    def remove(self, file: _File, touched: float, kind: str) -> bool:
        """Remove a file unless it is in use; return whether it is gone."""
        if _age(touched) < GRACE_SECONDS:
            return False
        try:
            if file.path.lstat().st_mtime != file.used:
                return False  # used or rewritten since this pass began
            file.path.unlink()
            self.counts.update({kind: 1, "bytes": file.size})
        except FileNotFoundError:
            pass  # another process removed it
        except OSError:
            return False
        self.left -= file.size
        return True


def remove_unfinished(folder: Path) -> int:
    """Remove partially written files of killed processes, and return their number."""
    count = 0
    for kind in ("cas", "ac", *_NOTES):
        for file in _files(folder / kind, _UNFINISHED):
            with contextlib.suppress(OSError):
                if _age(file.changed) >= _UNFINISHED_SECONDS:
                    file.path.unlink()
                    count += 1
    return count


def forget_notes(folder: Path, limit_bytes: int) -> int:
    """Remove the oldest notes of builds until the rest fits its limit; return the freed bytes.

    The size limit of a cache applies to objects and records. Notes on tasks, output directories,
    and builds may use another twentieth of it.

    Args:
        folder: directory of the cache format.
        limit_bytes: maximum total size of objects and records.
    """
    notes = [file for kind in _NOTES for file in _files(folder / kind, _RECORD)]
    before = remaining = sum(file.size for file in notes)
    for file in _oldest_first(notes):
        if remaining <= limit_bytes // _NOTES_SHARE or _age(file.used) < GRACE_SECONDS:
            break
        with contextlib.suppress(OSError):
            file.path.unlink(missing_ok=True)
            remaining -= file.size
    return before - remaining


def _oldest_first(files: Iterable[_File]) -> list[_File]:
    return sorted(files, key=lambda file: _age(file.used), reverse=True)


def _age(moment: float) -> float:
    """Return the seconds since a time. A time ahead comes from a wrong clock, and is as old."""
    return abs(time.time() - moment)


def _needs(record: _File, references: References) -> frozenset[str]:
    try:
        return frozenset(references(record.path))
    except CorruptFileError:
        return frozenset()


def _files(folder: Path, name: re.Pattern[str]) -> Iterator[_File]:
    """Yield regular files with a matching name, recursively; do not follow symlinks."""
    try:
        with os.scandir(folder) as entries:
            listing = sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise unreadable(folder, error) from error
    for entry in listing:
        try:
            facts = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # removed meanwhile
        if stat.S_ISDIR(facts.st_mode):
            yield from _files(Path(entry.path), name)
        elif stat.S_ISREG(facts.st_mode) and name.fullmatch(entry.name):
            changed = max(facts.st_mtime, facts.st_ctime)
            yield _File(Path(entry.path), facts.st_size, changed, facts.st_mtime)


MAX_VARIABLE: Final = "MOBILEPREP_CACHE_MAX"
DEFAULT_MAX: Final = 20 * 10**9
"""Default maximum size of the cache in bytes."""
_UNBOUNDED: Final = "none"


def store_bound(environ: Mapping[str, str]) -> int | None:
    """Return the maximum cache size from ``MOBILEPREP_CACHE_MAX``, or 20 GB; None if unlimited."""
    named = environ.get(MAX_VARIABLE, "").strip()
    if not named:
        return DEFAULT_MAX
    return None if named.lower() == _UNBOUNDED else bound_of(named, MAX_VARIABLE)


def bound_of(text: str, where: str) -> int:
    """Parse a size such as ``5GB`` or ``500 MiB``.

    Raises:
        UsageError: the size is invalid.
    """
    size = parse_bytes(text)
    if size is None:
        message = f"{text!r} is not a valid size"
        hint = "write a number with KB, MB, GB or TB, such as 5GB"
        hint += f", or {_UNBOUNDED}" if where == MAX_VARIABLE else ""
        raise UsageError(message, hint, where)
    return size


def keep_within(folder: Path, limit: int, references: References) -> None:
    """Evict entries if the cache exceeds its limit; measure it at most once an hour.

    If another build uses the cache, a later one measures it. Errors are ignored for the same
    reason.
    """
    note = folder / "measured"  # its mtime is the time of the last measurement
    with contextlib.suppress(OSError):
        if _age(note.lstat().st_mtime) < _PAUSE_SECONDS:
            return
    with (
        contextlib.suppress(CorruptFileError, ArtifactError),
        alone(folder, wait=False, tell=lambda _: None),
    ):
        remove_unfinished(folder)
        forget_notes(folder, limit)
        evict(folder, limit, references)
        write_bytes(note, b"", follow=False)
