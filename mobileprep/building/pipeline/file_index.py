"""Index of file digests that are valid while ``stat`` reports no change.

The rules follow git's index ("racy git"). ``docs/explanation/cache.md`` explains them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from time import time_ns
from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert, to_builtins

from mobileprep.building.pipeline.cache_files import mark_used, seal, unseal
from mobileprep.core.files import HASHING, read_file, sha256_stream, unreadable, write_bytes
from mobileprep.core.parallel import at_once
from mobileprep.core.paths import opened_file
from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.formats.parts import Digest


class FileIndex:
    """Digests of files, valid while the files' ``stat`` data does not change.

    An instance serves one run and is safe to use from several threads. It trusts the digests that
    this run noted for its own files until the end of the run. A later run hashes these files once.

    Args:
        path: file that stores the index between runs; None for an index in memory.
        checksum: ignore digests of earlier runs, so that each file is hashed once in this run.
    """

    def __init__(self, path: Path | None, *, checksum: bool = False) -> None:
        self._path = path
        self._checksum = checksum
        self._earlier = {} if path is None else load_entries(path)
        self._current: dict[str, IndexEntry] = {}
        self._written: set[str] = set()
        self._touched: set[str] = set()
        self._has_news = False

    def digest(self, path: Path) -> str:
        """Return the SHA-256 of a file in hexadecimal; follow symlinks."""
        entry = self._trusted(_key(path), _stamp(path))
        return entry.sha256 if entry is not None else self._hash(path)

    def digest_many(self, paths: Iterable[Path]) -> dict[Path, str]:
        """Return the digests of several files; hash them in parallel, largest first."""
        stamps = {path: _stamp(path) for path in paths}
        entries = {path: self._trusted(_key(path), stamp) for path, stamp in stamps.items()}
        due = [path for path, entry in entries.items() if entry is None]
        due.sort(key=lambda path: stamps[path].size, reverse=True)
        HASHING.expect(sum(stamps[path].size for path in due))
        hashed = dict(zip(due, at_once(self._hash, due), strict=True))
        return {p: hashed[p] if entry is None else entry.sha256 for p, entry in entries.items()}

    def matches(self, path: Path, sha256: str, size: int) -> bool:
        """Return whether a path is a regular file, not a symlink, with this content.

        Args:
            sha256: expected digest.
            size: expected size in bytes.
        """
        return self.match_many([(path, sha256, size)])[0]

    def match_many(self, requested: Iterable[tuple[Path, str, int]]) -> list[bool]:
        """Return the result of ``matches`` for each path, SHA-256, and size; hash in parallel."""
        listed = list(requested)
        answers = [self._known_match(*each) for each in listed]
        due = [each for each, answer in zip(listed, answers, strict=True) if answer is None]
        due.sort(key=lambda each: each[2], reverse=True)
        hashed = at_once(lambda each: self._hashed_match(each[0], each[1]), due)
        results = dict(zip(due, hashed, strict=True))
        return [
            results[each] if answer is None else answer
            for each, answer in zip(listed, answers, strict=True)
        ]

    def note(self, path: Path, sha256: str) -> None:
        """Note the digest of a file that this run has just written.

        A later run hashes the file again, because a change by another process between writing and
        noting would not be detected.
        """
        key = _key(path)
        with contextlib.suppress(CorruptFileError):
            self._current[key] = IndexEntry(sha256, 0, _stamp(path))
            self._written.add(key)
            self._has_news = True
            self._touched.discard(key)

    def unchanged(self, path: Path) -> bool:
        """Return whether a file is unchanged since this run first hashed or noted it."""
        key = _key(path)
        entry = self._current.get(key)
        if entry is None or key in self._touched:
            return False
        try:
            return entry.stamp.shows_same_content(_stamp(path))
        except CorruptFileError:
            return False

    def save(self) -> None:
        """Save the index for later runs; ignore write errors."""
        if self._path is None or not self._has_news:
            return
        now = time_ns()
        entries = {
            key: entry
            for key, entry in {**self._earlier, **self._current}.items()
            if entry.settled(now) and os.path.exists(key)  # noqa: PTH110 - Path raises for long names
        }
        with contextlib.suppress(ArtifactError):
            write_bytes(self._path, seal(_FORMAT, to_builtins(entries)), follow=False)

    def _known_match(self, path: Path, sha256: str, size: int) -> bool | None:
        """Return the result of ``matches``, or None if the file must be hashed."""
        try:
            facts = path.lstat()
        except (OSError, ValueError):  # invalid file name
            return False
        if not stat.S_ISREG(facts.st_mode) or facts.st_size != size:
            return False
        entry = self._trusted(_key(path), FileStamp.of(facts))
        return None if entry is None else entry.sha256 == sha256

    def _hashed_match(self, path: Path, sha256: str) -> bool:
        try:
            return self._hash(path) == sha256
        except CorruptFileError:
            return False

    def _trusted(self, key: str, stamp: FileStamp) -> IndexEntry | None:
        """Return the entry that is still valid for a file with this stamp."""
        now = time_ns()
        entry = self._current.get(key)
        if entry is not None:
            good = entry.stamp == stamp and (key in self._written or entry.settled(now))
            return entry if good else None
        entry = None if self._checksum else self._earlier.get(key)
        if entry is None or entry.stamp != stamp or not entry.settled(now):
            return None
        self._current[key] = entry
        return entry

    def _hash(self, path: Path) -> str:
        key = _key(path)
        moment = time_ns()
        try:
            with opened_file(path) as stream:
                before_read = os.fstat(stream.fileno())
                sha256 = sha256_stream(stream)
                after = os.fstat(stream.fileno())
        except OSError as error:
            raise unreadable(path, error) from error
        stamp = FileStamp.of(before_read)
        if stamp != FileStamp.of(after) or not stat.S_ISREG(before_read.st_mode):
            moment = 0  # Changed while it was read: the digest may match no state of the file.
        before = self._current.get(key)
        if before and (before.sha256 != sha256 or not before.stamp.shows_same_content(stamp)):
            self._touched.add(key)
        self._current[key] = IndexEntry(sha256, moment, stamp)
        self._written.discard(key)
        self._has_news = True
        return sha256


def _key(path: Path) -> str:
    return str(path.absolute())  # not resolved: symlinks may change


def _stamp(path: Path) -> FileStamp:
    try:
        return FileStamp.of(path.stat())
    except OSError as error:
        raise unreadable(path, error) from error


# File times have a resolution of one second at worst, and come from a clock that lags by a few
# milliseconds. A change within that time may not alter them.
MARGIN_NS = 2_000_000_000
_FORMAT = "file index 2"
_MOST_INDEX = 64 << 20


class FileStamp(Struct, frozen=True, array_like=True):
    """A file's state according to ``stat``; times are in nanoseconds."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, facts: os.stat_result) -> FileStamp:
        """Create a stamp from a result of ``os.stat``."""
        return cls(facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)

    def shows_same_content(self, other: FileStamp) -> bool:
        """Compare without inode numbers, which some network file systems generate."""
        times = (self.size, self.mtime_ns, self.ctime_ns)
        return times == (other.size, other.mtime_ns, other.ctime_ns)


class IndexEntry(Struct, frozen=True, array_like=True):
    """A digest, the time before hashing started, and the stamp of its file.

    A moment of 0 marks a digest that later runs must not trust.
    """

    sha256: Digest
    moment: Annotated[int, Meta(ge=0)]
    stamp: FileStamp

    def settled(self, now: int) -> bool:
        """Return whether the stamp would show every change since ``moment``.

        It would not if ``moment`` is in the future: the clock was set back, and may reach the times
        of the stamp again.
        """
        newest = max(self.stamp.mtime_ns, self.stamp.ctime_ns)
        return newest + MARGIN_NS <= self.moment <= now


def load_entries(path: Path) -> dict[str, IndexEntry]:
    """Return the entries of an index file by path; empty if it is missing or damaged."""
    try:
        data = unseal(_FORMAT, read_file(path, limit=_MOST_INDEX))
        entries = convert(data, dict[str, IndexEntry])
    except (CorruptFileError, ValidationError):
        return {}
    mark_used(path)
    return entries
