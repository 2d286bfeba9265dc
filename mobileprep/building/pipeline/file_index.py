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
        self._systems = FileSystems()
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
            return self._same(key, entry.stamp, _stamp(path))
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
        if not self._systems.tell_changes(key, stamp.device):
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
        if before and (before.sha256 != sha256 or not self._same(key, before.stamp, stamp)):
            self._touched.add(key)
        self._taken[key] = IndexEntry(sha256, moment, stamp)
        self._written.discard(key)
        self._has_news = True
        return sha256

    def _same(self, key: str, before: FileStamp, now: FileStamp) -> bool:
        if before == now:
            return True
        # Inode numbers may change where the file system generates them.
        return not self._systems.tell_changes(key, now.device) and (
            (before.size, before.mtime_ns, before.ctime_ns)
            == (now.size, now.mtime_ns, now.ctime_ns)
        )


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


# Local file systems with stable inode numbers and a ctime that the kernel sets at every change,
# including writes through a mapping, and never otherwise. Excluded on purpose, as are all unknown
# ones:
# - tmpfs, ramfs: writes to a page that was mapped and read first are not recorded;
# - vfat, exfat, ntfs: no real ctime or no real inode numbers;
# - nfs, cifs, 9p, virtiofs, fuse: times come from elsewhere and may be cached for seconds.
_TRUE = frozenset(
    {
        # Linux disk file systems with on-disk inode numbers. Some store whole seconds only.
        *("ext2", "ext3", "ext4", "xfs", "f2fs", "jfs", "nilfs2"),
        # The same with subvolumes, each of which has its own device number.
        *("btrfs", "bcachefs", "zfs"),
        # Used by containers. Times and inodes are those of the layer that contains the file.
        # Copying to the upper layer may change device and inode; then the file is hashed again. If
        # that layer is visible, its own file system decides: live systems keep it in memory.
        "overlay",
    }
)
# Their files may have devices that no mount lists: subvolumes and overlay layers.
_UNNAMED = frozenset(("btrfs", "bcachefs", "overlay"))
# For smaller files, looking up the file system costs as much as it saves.
_RESERVED: Final = 4 << 20
# ext4, and the overlay that containers put on top of it.
_ALLOCATING_LATE: Final = frozenset(("ext4", "overlay"))

_MOUNTINFO = Path("/proc/self/mountinfo")
_UPPER = re.compile(rb"(?:^|,)upperdir=([^,]+)")
_ESCAPE = re.compile(rb"\\([0-7]{3})")


class Mount(Struct, frozen=True):
    """A mounted file system: device numbers, mount point, type, and upper directory.

    ``upper`` is the writable directory of an overlay, or empty if it is unknown.
    """

    major: int
    minor: int
    point: str
    kind: str
    upper: str = ""


def read_mounts() -> list[Mount]:
    """Return the mounts in order of mounting; empty if the system has no mountinfo (not Linux)."""
    try:
        lines = _MOUNTINFO.read_bytes().splitlines()
    except OSError:
        return []
    return [mount for line in lines if (mount := _parse(line)) is not None]


def _parse(line: bytes) -> Mount | None:
    """Parse a line of proc(5): ``36 35 98:0 /root /point options ... - kind source options``."""
    fields, _, rest = line.partition(b" - ")
    try:
        major, minor = map(int, fields.split()[2].split(b":"))
        point = _unescaped(fields.split()[4])
        kind, _, *options = rest.split()
        match = _UPPER.search(options[0]) if options else None
        upper = _unescaped(match[1]) if match else ""
        return Mount(major, minor, point, kind.decode(), upper)
    except (ValueError, IndexError):
        return None


def _unescaped(text: bytes) -> str:
    return os.fsdecode(_ESCAPE.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), text))


class FileSystems:
    """File system types by device; each device is looked up once."""

    def __init__(self) -> None:
        self._kinds: dict[int, str] = {}

    def tell_changes(self, path: str, device: int) -> bool:
        """Return whether any change to a file on ``device`` alters its inode, size, or ctime."""
        return self._kind_of(path, device) in _TRUE

    def reserve(self, descriptor: int, path: str, size: int) -> None:
        """Allocate the blocks of a new file before writing if that saves time.

        ext4 delays allocation until a file replaces another one by rename, and then allocates one
        run of pages at a time while the caller waits. On other file systems, the C library may
        write to every block instead.

        Args:
            descriptor: open file.
            path: path of the file, to find its file system.
            size: final size in bytes.
        """
        device = os.fstat(descriptor).st_dev
        if size >= _RESERVED and self._kind_of(path, device) in _ALLOCATING_LATE:
            os.posix_fallocate(descriptor, 0, size)

    def _kind_of(self, path: str, device: int) -> str:
        if device not in self._kinds:
            # Read again for each device, because it may have been mounted since.
            self._kinds[device] = _kind(read_mounts(), path, device)
        return self._kinds[device]


def _kind(mounts: list[Mount], path: str, device: int) -> str:
    """Return the file system type of a device, or an empty string if it is unknown."""
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
    """Return a mount's type; for an overlay on an untrusted visible layer, that layer's type."""
    upper = Path(mount.upper)
    if mount.kind != "overlay" or not upper.is_absolute() or not upper.exists():
        return mount.kind
    layer = _nearest(mounts, mount.upper)
    return mount.kind if layer is None or layer.kind in _TRUE else layer.kind


def _nearest(mounts: list[Mount], path: str) -> Mount | None:
    """Return the mount that contains a path."""
    real = os.path.realpath(path)
    above = [m for m in mounts if _is_below(real, m.point)]
    # Of mounts at the same point, the last one hides the others.
    return max(reversed(above), key=lambda m: len(m.point), default=None)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
