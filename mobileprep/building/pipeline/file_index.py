"""Digests of files that were hashed before, valid while ``stat`` tells that nothing changed.

The rules are those of git's index ("racy git"); ``docs/explanation/cache.md`` has them in words.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mobileprep.building.pipeline.cache_files import mark_used, seal, unseal
from mobileprep.core.files import HASHING, read_file, sha256_stream, unreadable, write_bytes
from mobileprep.core.parallel import at_once, begun
from mobileprep.core.paths import opened_file
from mobileprep.errors import ArtifactError, CorruptFileError

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
        """The sha256 of the file that a path leads to, in hex."""
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
        """The digests of several files, those to hash shared out among the processors."""
        wanted = list(paths)
        self.begin(wanted)
        return {path: self.digest(path) for path in wanted}

    def matches(self, path: Path, sha256: str, size: int) -> bool:
        """Whether a path is a regular file, not a link, of these bytes; False where it is missing.

        Args:
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


# Times of files are kept in whole seconds at worst, and come from a clock that is read a few
# milliseconds late: a change in that time may leave them as they were.
MARGIN_NS = 2_000_000_000
_FORMAT = "file index 1"
_MOST_INDEX = 64 << 20
# A digest, the moment before it was taken, and the stamp's five numbers.
_ENTRY = re.compile(r"([0-9a-f]{64}) ([0-9]{1,20}) ([-0-9 ]{9,120})")


class FileStamp(Struct, frozen=True):
    """What ``stat`` tells of a file's state; times in nanoseconds."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileStamp:
        """The stamp of what ``os.stat`` returned."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def text(self) -> str:
        """Its numbers, as the index file has them."""
        return f"{self.device} {self.inode} {self.size} {self.mtime_ns} {self.ctime_ns}"


class IndexEntry(Struct, frozen=True):
    """A digest, the stamp of the file that has it, and the moment before it was hashed.

    A moment of 0 is that of a digest that must not be trusted by later runs.
    """

    sha256: str
    moment: int
    stamp: FileStamp

    def settled(self, now: int) -> bool:
        """Whether any change since the moment shows in the stamp.

        Not so for a moment that has yet to come: the clock was set back, and may pass the
        times of the stamp a second time.
        """
        newest = max(self.stamp.mtime_ns, self.stamp.ctime_ns)
        return newest + MARGIN_NS <= self.moment <= now

    def text(self) -> str:
        """The line of the index file that ``parse`` reads."""
        return f"{self.sha256} {self.moment} {self.stamp.text()}"


def load_entries(path: Path) -> dict[str, str]:
    """The entries of an index file by path, unread; none where it is missing or damaged."""
    try:
        data = unseal(_FORMAT, read_file(path, limit=_MOST_INDEX))
        paths, entries = data["paths"], data["entries"]  # type: ignore[index]
        texts_only = {str}.issuperset(map(type, [*paths, *entries]))
        mark_used(path)
        return dict(zip(paths, entries, strict=True)) if texts_only else {}
    except (CorruptFileError, KeyError, TypeError, ValueError):
        return {}


def save_entries(path: Path, entries: Mapping[str, str]) -> None:
    """Write an index file, atomically."""
    data = {"paths": list(entries), "entries": list(entries.values())}
    write_bytes(path, seal(_FORMAT, data), follow=False)


def parse(text: str | None, stamp: FileStamp) -> IndexEntry | None:
    """The entry of that text where it is for a file with that stamp."""
    found = text and _ENTRY.fullmatch(text)
    if not found or found[3] != stamp.text():
        return None
    return IndexEntry(found[1], int(found[2]), stamp)


# Local file systems whose inode numbers stay and whose ctime is set by the kernel at every change,
# stores through a mapping included, and by nothing else. Left out on purpose, beside all that
# is not known:
# - tmpfs, ramfs: a page that a program mapped and read first is changed without a trace;
# - vfat, exfat, ntfs: no true ctime or no true inode numbers;
# - nfs, cifs, 9p, virtiofs, fuse: times come from elsewhere, and may be kept for seconds.
_TRUE = frozenset(
    {
        # Linux's own, on disks: inodes as they are on the disk. Some keep whole seconds only.
        *("ext2", "ext3", "ext4", "xfs", "f2fs", "jfs", "nilfs2"),
        # The same with subvolumes, each of which is a device of its own.
        *("btrfs", "bcachefs", "zfs"),
        # What containers run on: times and inodes are those of the layer that holds the file. A
        # copy to the upper layer may change device and inode, and then the file is hashed again.
        # Where that layer is seen, it counts by what it lies on: live systems have it in memory.
        "overlay",
    }
)
# Their files may lie on devices that no mount names: subvolumes, and the layers of overlay.
_UNNAMED = frozenset(("btrfs", "bcachefs", "overlay"))
# Below, looking up the file system takes as long as it saves.
_RESERVED: Final = 4 << 20
# Itself, and what containers put on it.
_ALLOCATING_LATE: Final = frozenset(("ext4", "overlay"))

_MOUNTINFO = Path("/proc/self/mountinfo")
_UPPER = re.compile(rb"(?:^|,)upperdir=([^,]+)")
_ESCAPE = re.compile(rb"\\([0-7]{3})")


class Mount(Struct, frozen=True):
    """A mounted file system: its device's numbers, where it is seen, its kind, and its layer.

    The layer is the folder that an overlay puts files in, empty where that is not told.
    """

    major: int
    minor: int
    point: str
    kind: str
    upper: str = ""


def read_mounts() -> list[Mount]:
    """What is mounted, in order of mounting; nothing where the system does not tell (not Linux)."""
    try:
        lines = _MOUNTINFO.read_bytes().splitlines()
    except OSError:
        return []
    return [mount for line in lines if (mount := _parse(line)) is not None]


def _parse(line: bytes) -> Mount | None:
    """A line as proc(5) has it: ``36 35 98:0 /root /point options ... - kind source options``."""
    fields, _, rest = line.partition(b" - ")
    try:
        major, minor = map(int, fields.split()[2].split(b":"))
        point = _unescaped(fields.split()[4])
        kind, _, *options = rest.split()
        found = _UPPER.search(options[0]) if options else None
        upper = _unescaped(found[1]) if found else ""
        return Mount(major, minor, point, kind.decode(), upper)
    except (ValueError, IndexError):
        return None


def _unescaped(text: bytes) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), text))


class FileSystems:
    """What is known of the devices that files lie on; each is looked up once."""

    def __init__(self) -> None:
        self._kinds: dict[int, str] = {}

    def tell_changes(self, path: str, device: int) -> bool:
        """Whether any change to a file on ``device`` alters its inode, its size or its ctime."""
        return self._kind_of(path, device) in _TRUE

    def reserve(self, descriptor: int, path: str, size: int) -> None:
        """Have the blocks of a new file allocated before it is written, where that saves time.

        ext4 allocates them as a file takes a name that another had, one run of pages at a time,
        and whoever renames waits. Elsewhere the C library may write to every block instead.

        Args:
            size: the bytes that it will have.
        """
        device = os.fstat(descriptor).st_dev
        if size >= _RESERVED and self._kind_of(path, device) in _ALLOCATING_LATE:
            os.posix_fallocate(descriptor, 0, size)

    def _kind_of(self, path: str, device: int) -> str:
        if device not in self._kinds:
            # Read anew for each: what was mounted since is on a device not seen before.
            self._kinds[device] = _kind(read_mounts(), path, device)
        return self._kinds[device]


def _kind(mounts: list[Mount], path: str, device: int) -> str:
    """The kind of file system of a device; nothing where it cannot be told."""
    if not mounts:
        return ""
    major, minor = os.major(device), os.minor(device)
    kinds = {_seen(mounts, m) for m in mounts if (m.major, m.minor) == (major, minor)}
    if kinds:
        return kinds.pop() if len(kinds) == 1 else ""
    nearest = _nearest(mounts, path)
    if nearest is None or major != 0 or nearest.kind not in _UNNAMED:
        return ""
    return _seen(mounts, nearest)


def _seen(mounts: list[Mount], mount: Mount) -> str:
    """A mount's kind; of an overlay that of its upper layer, unless none or a true one is seen."""
    upper = Path(mount.upper)
    if mount.kind != "overlay" or not upper.is_absolute() or not upper.exists():
        return mount.kind
    layer = _nearest(mounts, mount.upper)
    return mount.kind if layer is None or layer.kind in _TRUE else layer.kind


def _nearest(mounts: list[Mount], path: str) -> Mount | None:
    """The mount that a path leads into."""
    real = os.path.realpath(path)
    above = [m for m in mounts if _is_below(real, m.point)]
    # Of equally long ones the last was mounted over the others.
    return max(reversed(above), key=lambda m: len(m.point), default=None)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
