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
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from mobileprep.building.pipeline.locks import Release, alone, share
from mobileprep.building.pipeline.output import sweep
from mobileprep.core.files import unreadable, write_bytes
from mobileprep.errors import ArtifactError, CorruptFileError, UsageError
from mobileprep.recipe.units import parse_bytes

_GRACE_SECONDS = 3600
_PAUSE_SECONDS = 3600
# Allowed clock difference between machines that share a cache. A time further ahead comes from a
# wrong clock: the real time is unknown, but the entry has not been used since.
_SKEW_SECONDS = 3600
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
    work = _Eviction(folder)
    if work.left > limit_bytes:
        work.evict(limit_bytes, references)
    return work.done()


class _Eviction:
    """One eviction pass over a cache."""

    def __init__(self, folder: Path) -> None:
        self._now = time.time()
        self._objects = {file.path.name: file for file in _files(folder / "cas", _OBJECT)}
        self._records = _least_used_first(_files(folder / "ac", _RECORD), self._now)
        self._removed: Counter[str] = Counter()
        self.left = sum(file.size for file in (*self._objects.values(), *self._records))

    def evict(self, limit: int, references: References) -> None:
        needs = {record: _needs(record, references) for record in self._records}
        users = Counter(digest for digests in needs.values() for digest in digests)
        by_age = sorted(self._objects.values(), key=lambda file: file.changed)
        self._remove_objects((f.path.name for f in by_age if f.path.name not in users), limit)
        for record in self._records:
            if self.left <= limit:
                return
            # Remove the record before its objects, so that existing records stay complete.
            if self._remove(record, record.used, "records"):
                users.subtract(needs[record])
                alone = sorted(digest for digest in needs[record] if not users[digest])
                self._remove_objects(alone, 0)

    def done(self) -> Evicted:
        counts = self._removed
        return Evicted(counts["objects"], counts["records"], counts["bytes"], self.left)

    def _remove_objects(self, digests: Iterable[str], limit: int) -> None:
        for digest in digests:
            file = self._objects.get(digest)
            if file is not None and self.left > limit:
                self._remove(file, file.changed, "objects")

    def _remove(self, file: _File, touched: float, kind: str) -> bool:
        if _within(_GRACE_SECONDS, touched, self._now):
            return False
        try:
            if file.path.lstat().st_mtime != file.used:
                return False  # used or rewritten since this pass began
            file.path.unlink()
        except FileNotFoundError:
            self.left -= file.size  # another process removed it
            return True
        except OSError:
            return False
        self.left -= file.size
        self._removed.update({kind: 1, "bytes": file.size})
        return True


def remove_unfinished(folder: Path) -> int:
    """Remove partially written files of killed processes, and return their number."""
    now = time.time()
    count = 0
    for kind in ("cas", "ac", *_NOTES):
        for file in _files(folder / kind, _UNFINISHED):
            with contextlib.suppress(OSError):
                if not _within(_UNFINISHED_SECONDS, file.changed, now):
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
    now = time.time()
    for file in _least_used_first(notes, now):
        if remaining <= limit_bytes // _NOTES_SHARE or _within(_GRACE_SECONDS, file.used, now):
            break
        with contextlib.suppress(OSError):
            file.path.unlink(missing_ok=True)
            remaining -= file.size
    return before - remaining


def _least_used_first(files: Iterable[_File], now: float) -> list[_File]:
    return sorted(files, key=lambda file: (not _is_ahead(file.used, now), file.used))


def _within(seconds: float, time_of: float, now: float) -> bool:
    """Return whether a time is less than ``seconds`` ago."""
    return now - time_of < seconds and not _is_ahead(time_of, now)


def _is_ahead(time_of: float, now: float) -> bool:
    return time_of - now > _SKEW_SECONDS


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


class Upkeep:
    """Maintenance of the cache during one run.

    Args:
        folder: directory of the cache format, with ``cas``, ``ac``, and ``tmp``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._release: Release | None = None
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Register this run as a user of the cache, and remove abandoned work directories."""
        with self._lock:
            if self._release is None:
                self._release = share(self._folder)
                sweep(self._folder / "tmp")

    def end(self, limit: int | None, references: References) -> None:
        """Unregister this run, and evict entries if the cache exceeds its limit.

        The cache is measured at most once an hour. Errors are ignored: the next build tries again.

        Args:
            limit: maximum size in bytes, None if unlimited.
            references: see ``evict``.
        """
        with self._lock:
            if self._release is None:
                return
            self._release()
            self._release = None
        if limit is None or self._is_recent():
            return
        with (
            contextlib.suppress(CorruptFileError, ArtifactError),
            # If another build is still running, a later one measures the cache.
            alone(self._folder, wait=False, tell=_discard_message),
        ):
            remove_unfinished(self._folder)
            forget_notes(self._folder, limit)
            evict(self._folder, limit, references)
            write_bytes(self._note, b"", follow=False)

    def _is_recent(self) -> bool:
        try:
            return _within(_PAUSE_SECONDS, self._note.lstat().st_mtime, time.time())
        except OSError:
            return False

    @property
    def _note(self) -> Path:
        """A file whose mtime is the time of the last measurement."""
        return self._folder / "measured"


def _discard_message(sentence: str) -> None:
    """Ignore a message."""
