"""Index of file digests that are valid while ``stat`` reports no change.

The rules follow git's index ("racy git"). ``docs/explanation/cache.md`` explains them.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

from msgspec import Struct

from mobileprep.building.pipeline.cache_files import mark_used, seal, unseal
from mobileprep.core.files import HASHING, read_file, sha256_stream, unreadable, write_bytes
from mobileprep.core.parallel import at_once, begun
from mobileprep.core.paths import opened_file
from mobileprep.errors import ArtifactError, CorruptFileError

if TYPE_CHECKING:
    from concurrent.futures import Future


class FileIndex:
    """Digests of files, valid while the files' ``stat`` data does not change.

    An instance serves one run and is safe to use from several threads. It trusts the digests that
    this run noted for its own files until the end of the run. A later run hashes these files once.

    Args:
        path: file that stores the index between runs; None for an index in memory.
        checksum: ignore digests of earlier runs, so that each file is hashed once in this run.
        kept: ``entries`` of an earlier run, for an index in memory.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        checksum: bool = False,
        kept: Mapping[str, str] | None = None,
    ) -> None:
        self._path = path
        self._checksum = checksum
        self._kept = dict(kept or {}) if path is None else load_entries(path)
        self._taken: dict[str, IndexEntry] = {}
        self._written: set[str] = set()
        self._touched: set[str] = set()
        self._begun: dict[str, Future[str]] = {}
        self._has_news = False

    def digest(self, path: Path) -> str:
        """Return the SHA-256 of a file in hexadecimal; follow symlinks."""
        entry = self._trusted(_key(path), _stamp(path))
        return entry.sha256 if entry is not None else self._hash(path)

    def begin(self, paths: Iterable[Path]) -> None:
        """Start hashing files without a valid digest; ``digest`` waits for them.

        Files are hashed in the background, largest first. Errors of missing or unreadable files are
        raised by ``digest``.
        """
        due: dict[Path, int] = {}
        for path in paths:
            with contextlib.suppress(CorruptFileError):
                stamp = _stamp(path)
                if _key(path) not in self._begun and self._trusted(_key(path), stamp) is None:
                    due[path] = stamp.size
        HASHING.expect(sum(due.values()))
        hashing = begun(self._hash_now, sorted(due, key=due.__getitem__, reverse=True))
        self._begun.update({_key(path): future for path, future in hashing.items()})

    def digest_many(self, paths: Iterable[Path]) -> dict[Path, str]:
        """Return the digests of several files and hash them in parallel."""
        requested = list(paths)
        self.begin(requested)
        return {path: self.digest(path) for path in requested}

    def matches(self, path: Path, sha256: str, size: int) -> bool:
        """Return whether a path is a regular file, not a symlink, with this content.

        Args:
            sha256: expected digest.
            size: expected size in bytes.
        """
        answer = self._known_match(path, sha256, size)
        return self._hashed_match(path, sha256) if answer is None else answer

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
            self._taken[key] = IndexEntry(sha256, 0, _stamp(path))
            self._written.add(key)
            self._has_news = True
            self._touched.discard(key)

    def unchanged(self, path: Path) -> bool:
        """Return whether a file is unchanged since this run first hashed or noted it."""
        key = _key(path)
        entry = self._taken.get(key)
        if entry is None or key in self._touched:
            return False
        try:
            return entry.stamp.shows_same_content(_stamp(path))
        except CorruptFileError:
            return False

    def entries(self, paths: Iterable[Path]) -> dict[str, str]:
        """Return the digests of this run in the form of the ``kept`` parameter.

        Files that were modified too recently to be trusted are omitted.
        """
        now = time_ns()
        entries = {key: self._taken[key] for key in map(_key, paths) if key in self._taken}
        return {key: entry.text() for key, entry in entries.items() if entry.settled(now)}

    def save(self) -> None:
        """Save the index for later runs; ignore write errors."""
        if self._path is None or not self._has_news:
            return
        now = time_ns()
        entries = dict(self._taken)
        texts = {
            key: text for key, text in self._kept.items() if key not in entries and _is_there(key)
        }
        for key, entry in entries.items():
            if entry.settled(now) and _is_there(key):
                texts[key] = entry.text()
        with contextlib.suppress(ArtifactError):
            save_entries(self._path, texts)

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
        entry = self._taken.get(key)
        if entry is not None:
            good = entry.stamp == stamp and (key in self._written or entry.settled(now))
            return entry if good else None
        entry = None if self._checksum else parse(self._kept.get(key), stamp)
        if entry is None or not entry.settled(now):
            return None
        self._taken[key] = entry
        return entry

    def _hash(self, path: Path) -> str:
        under_way = self._begun.pop(_key(path), None)
        if under_way is not None:
            sha256 = under_way.result()
            # The file may have changed since it was hashed.
            if self._taken[_key(path)].stamp == _stamp(path):
                return sha256
        return self._hash_now(path)

    def _hash_now(self, path: Path) -> str:
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
        before = self._taken.get(key)
        if before and (before.sha256 != sha256 or not before.stamp.shows_same_content(stamp)):
            self._touched.add(key)
        self._taken[key] = IndexEntry(sha256, moment, stamp)
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


def _is_there(key: str) -> bool:
    try:
        Path(key).stat()
    except (OSError, ValueError):
        return False
    return True


# File times have a resolution of one second at worst, and come from a clock that lags by a few
# milliseconds. A change within that time may not alter them.
MARGIN_NS = 2_000_000_000
_FORMAT = "file index 1"
_MOST_INDEX = 64 << 20
# A digest, the time before hashing started, and the five numbers of the stamp.
_ENTRY = re.compile(r"([0-9a-f]{64}) ([0-9]{1,20}) ([-0-9 ]{9,120})")


class FileStamp(Struct, frozen=True):
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
        return (self.size, self.mtime_ns, self.ctime_ns) == (
            other.size,
            other.mtime_ns,
            other.ctime_ns,
        )

    def text(self) -> str:
        """Format the stamp for the index file."""
        return f"{self.device} {self.inode} {self.size} {self.mtime_ns} {self.ctime_ns}"


class IndexEntry(Struct, frozen=True):
    """A digest, the stamp of its file, and the time before hashing started.

    A moment of 0 marks a digest that later runs must not trust.
    """

    sha256: str
    moment: int
    stamp: FileStamp

    def settled(self, now: int) -> bool:
        """Return whether the stamp would show every change since ``moment``.

        It would not if ``moment`` is in the future: the clock was set back, and may reach the times
        of the stamp again.
        """
        newest = max(self.stamp.mtime_ns, self.stamp.ctime_ns)
        return newest + MARGIN_NS <= self.moment <= now

    def text(self) -> str:
        """Format the entry as a line of the index file; see ``parse``."""
        return f"{self.sha256} {self.moment} {self.stamp.text()}"


def load_entries(path: Path) -> dict[str, str]:
    """Return the unparsed entries of an index file by path; empty if it is missing or damaged."""
    try:
        data = unseal(_FORMAT, read_file(path, limit=_MOST_INDEX))
        paths, entries = data["paths"], data["entries"]  # type: ignore[index]
        texts_only = {str}.issuperset(map(type, [*paths, *entries]))
        mark_used(path)
        return dict(zip(paths, entries, strict=True)) if texts_only else {}
    except (CorruptFileError, KeyError, TypeError, ValueError):
        return {}


def save_entries(path: Path, entries: Mapping[str, str]) -> None:
    """Write an index file atomically."""
    data = {"paths": list(entries), "entries": list(entries.values())}
    write_bytes(path, seal(_FORMAT, data), follow=False)


def parse(text: str | None, stamp: FileStamp) -> IndexEntry | None:
    """Parse an entry; return None if it is invalid or for a different stamp."""
    match = text and _ENTRY.fullmatch(text)
    if not match or match[3] != stamp.text():
        return None
    return IndexEntry(match[1], int(match[2]), stamp)
