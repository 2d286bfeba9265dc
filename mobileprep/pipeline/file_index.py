"""Digests of files that were hashed before, valid while ``stat`` tells that nothing changed.

The rules are those of git's index ("racy git"); ``docs/incremental.md`` has them in words.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING

from mobileprep.core.files import HASHING, sha256_stream, unreadable
from mobileprep.core.parallel import at_once, begun
from mobileprep.core.paths import opened_file
from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.pipeline.file_systems import FileSystems
from mobileprep.pipeline.index_entries import (
    FileStamp,
    IndexEntry,
    load_entries,
    parse,
    save_entries,
)

if TYPE_CHECKING:
    from concurrent.futures import Future


class FileIndex:
    """The digests of files that were hashed before, valid while the files' stat data are the same.

    One object serves one run, from any number of threads. What this run has written itself
    and noted is taken as written until its end; a later run hashes it once.

    Args:
        path: the file that keeps the index from run to run; None for an index in memory.
        checksum: trust nothing of earlier runs; each file is hashed once in this run.
        kept: what ``entries`` of an earlier run gave, where no file keeps it.
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
        self._systems = FileSystems()
        self._kept = dict(kept or {}) if path is None else load_entries(path)
        self._taken: dict[str, IndexEntry] = {}
        self._written: set[str] = set()
        self._touched: set[str] = set()
        self._begun: dict[str, Future[str]] = {}
        self._has_news = False

    def digest(self, path: Path) -> str:
        """The sha256 of the file that a path leads to, in hex.

        Raises:
            CorruptFileError: it is missing or cannot be read.
        """
        known = self._trusted(_key(path), _stamp(path))
        return known.sha256 if known is not None else self._hash(path)

    def begin(self, paths: Iterable[Path]) -> None:
        """Begin to hash those of some files that have to be; whoever asks for them waits.

        It is done in the background, the largest first. What is missing, or cannot be read, says so
        when it is asked for.
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
        """The digests of several files, those to hash shared out among the processors.

        Raises:
            CorruptFileError: one of them is missing or cannot be read.
        """
        wanted = list(paths)
        self.begin(wanted)
        return {path: self.digest(path) for path in wanted}

    def matches(self, path: Path, sha256: str, size: int) -> bool:
        """Whether a path is a regular file, not a link, of these bytes; False where it is missing.

        Args:
            path: the file.
            sha256: the digest that it should have.
            size: its length in bytes.
        """
        known = self._known_match(path, sha256, size)
        return self._hashed_match(path, sha256) if known is None else known

    def match_many(self, wanted: Iterable[tuple[Path, str, int]]) -> list[bool]:
        """What ``matches`` says of each path, sha256 and size, hashed as ``digest_many`` does."""
        listed = list(wanted)
        answers = [self._known_match(*each) for each in listed]
        due = [each for each, answer in zip(listed, answers, strict=True) if answer is None]
        due.sort(key=lambda each: each[2], reverse=True)
        hashed = at_once(lambda each: self._hashed_match(each[0], each[1]), due)
        found = dict(zip(due, hashed, strict=True))
        return [
            found[each] if answer is None else answer
            for each, answer in zip(listed, answers, strict=True)
        ]

    def note(self, path: Path, sha256: str) -> None:
        """Note the digest of a file that this run has just written.

        A later run hashes it again: a change by others between writing and noting does not show.
        """
        key = _key(path)
        with contextlib.suppress(CorruptFileError):
            self._taken[key] = IndexEntry(sha256, 0, _stamp(path))
            self._written.add(key)
            self._has_news = True
            self._touched.discard(key)

    def unchanged(self, path: Path) -> bool:
        """Whether a file is as it was when this run first took its digest, or noted it."""
        key = _key(path)
        taken = self._taken.get(key)
        if taken is None or key in self._touched:
            return False
        try:
            return self._same(key, taken.stamp, _stamp(path))
        except CorruptFileError:
            return False

    def entries(self, paths: Iterable[Path]) -> dict[str, str]:
        """What a later run may take as ``kept`` of some files whose digests this run has taken.

        Files whose times are too new to be believed are not among them.
        """
        now = time_ns()
        taken = {key: self._taken[key] for key in map(_key, paths) if key in self._taken}
        return {key: entry.text() for key, entry in taken.items() if entry.settled(now)}

    def save(self) -> None:
        """Keep the index for later runs; an index that cannot be written is none, and no error."""
        if self._path is None or not self._has_news:
            return
        now = time_ns()
        taken = dict(self._taken)
        kept = {
            key: text for key, text in self._kept.items() if key not in taken and _is_there(key)
        }
        for key, entry in taken.items():
            if entry.settled(now) and _is_there(key):
                kept[key] = entry.text()
        with contextlib.suppress(ArtifactError):
            save_entries(self._path, kept)

    def _known_match(self, path: Path, sha256: str, size: int) -> bool | None:
        """What ``matches`` says where nothing need be hashed for it."""
        try:
            found = path.lstat()
        except (OSError, ValueError):  # a name that no file can have
            return False
        if not stat.S_ISREG(found.st_mode) or found.st_size != size:
            return False
        known = self._trusted(_key(path), FileStamp.of(found))
        return None if known is None else known.sha256 == sha256

    def _hashed_match(self, path: Path, sha256: str) -> bool:
        try:
            return self._hash(path) == sha256
        except CorruptFileError:
            return False

    def _trusted(self, key: str, stamp: FileStamp) -> IndexEntry | None:
        """The entry that still holds for a file with that stamp."""
        now = time_ns()
        entry = self._taken.get(key)
        if entry is not None:
            good = entry.stamp == stamp and (key in self._written or entry.settled(now))
            return entry if good else None
        entry = None if self._checksum else parse(self._kept.get(key), stamp)
        if entry is None or not entry.settled(now):
            return None
        if not self._systems.tell_changes(key, stamp.device):
            return None
        self._taken[key] = entry
        return entry

    def _hash(self, path: Path) -> str:
        under_way = self._begun.pop(_key(path), None)
        if under_way is not None:
            sha256 = under_way.result()
            # It may have changed since then.
            if self._taken[_key(path)].stamp == _stamp(path):
                return sha256
        return self._hash_now(path)

    def _hash_now(self, path: Path) -> str:
        key = _key(path)
        moment = time_ns()
        try:
            with opened_file(path) as stream:
                found = os.fstat(stream.fileno())
                sha256 = sha256_stream(stream)
                after = os.fstat(stream.fileno())
        except OSError as error:
            raise unreadable(path, error) from error
        stamp = FileStamp.of(found)
        if stamp != FileStamp.of(after) or not stat.S_ISREG(found.st_mode):
            moment = 0  # Changed while it was read: the digest may be that of no state of it.
        before = self._taken.get(key)
        if before and (before.sha256 != sha256 or not self._same(key, before.stamp, stamp)):
            self._touched.add(key)
        self._taken[key] = IndexEntry(sha256, moment, stamp)
        self._written.discard(key)
        self._has_news = True
        return sha256

    def _same(self, key: str, before: FileStamp, now: FileStamp) -> bool:
        if before == now:
            return True
        # Inode numbers may change by themselves where they are made up.
        return not self._systems.tell_changes(key, now.device) and (
            (before.size, before.mtime_ns, before.ctime_ns)
            == (now.size, now.mtime_ns, now.ctime_ns)
        )


def _key(path: Path) -> str:
    return str(path.absolute())  # not resolved: links may turn


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
