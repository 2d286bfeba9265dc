"""What an index of files holds, and its file: damaged or of another format, it is empty."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from mobileprep.core.files import read_file, write_bytes
from mobileprep.errors import CorruptFileError
from mobileprep.frozen import dataclass
from mobileprep.pipeline.checked import seal, unseal
from mobileprep.pipeline.eviction import mark_used

# Times of files are kept in whole seconds at worst, and come from a clock that is read a few
# milliseconds late: a change in that time may leave them as they were.
MARGIN_NS = 2_000_000_000
_FORMAT = "file index 1"
_MOST_INDEX = 64 << 20
# A digest, the moment before it was taken, and the stamp's five numbers.
_ENTRY = re.compile(r"([0-9a-f]{64}) ([0-9]{1,20}) ([-0-9 ]{9,120})")


@dataclass(frozen=True)
class FileStamp:
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


@dataclass(frozen=True)
class IndexEntry:
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
    """Write an index file, atomically.

    Raises:
        ArtifactError: it cannot be written.
    """
    data = {"paths": list(entries), "entries": list(entries.values())}
    write_bytes(path, seal(_FORMAT, data), follow=False)


def parse(text: str | None, stamp: FileStamp) -> IndexEntry | None:
    """The entry of that text where it is for a file with that stamp."""
    found = text and _ENTRY.fullmatch(text)
    if not found or found[3] != stamp.text():
        return None
    return IndexEntry(found[1], int(found[2]), stamp)
