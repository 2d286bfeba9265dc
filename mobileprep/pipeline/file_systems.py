"""Which file systems tell of every change to a file by what ``stat`` says of it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from mobileprep.frozen import dataclass

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


@dataclass(frozen=True)
class Mount:
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
        """Whether any change to a file on ``device`` alters its inode, its size or its ctime.

        Args:
            path: one file of the device.
            device: its ``st_dev``.
        """
        return self._kind_of(path, device) in _TRUE

    def reserve(self, descriptor: int, path: str, size: int) -> None:
        """Have the blocks of a new file allocated before it is written, where that saves time.

        ext4 allocates them as a file takes a name that another had, one run of pages at a time,
        and whoever renames waits. Elsewhere the C library may write to every block instead.

        Args:
            descriptor: the file, open for writing and empty.
            path: its path.
            size: the bytes that it will have.

        Raises:
            OSError: there is no room for so many.
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
