"""What calibration and validation see of data: batches of samples, with labels if any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from mobileprep.errors import MobileprepError
from mobileprep.frozen import dataclass
from mobileprep.ir.tensor import Array


@dataclass(frozen=True)
class Batch:
    """Some samples.

    Args:
        feeds: an array for each input, the samples along its first axis.
        labels: an entry for each sample, or None where the data has none.
        names: what each sample is called, for messages: ``cats/1.jpg``, ``sample 3``.
        rotated: the names of pictures with an EXIF orientation.
    """

    feeds: Mapping[str, Array]
    labels: Array | None
    names: tuple[str, ...]
    rotated: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unread:
    """A sample that cannot be read, and why."""

    name: str
    error: MobileprepError


class Dataset(Protocol):
    """Samples that are read when they are asked for, the same ones in the same order each time."""

    @property
    def name(self) -> str:
        """What messages call the data: the file or folder as the recipe names it."""

    def __len__(self) -> int:
        """How many samples there are; one that turns out to be unreadable counts."""

    def batches(
        self,
        size: int,
        start: int = 0,
        stop: int | None = None,
        unread: list[Unread] | None = None,
    ) -> Iterator[Batch]:
        """The samples ``start`` to ``stop``, ``size`` at a time; a batch may be smaller.

        Samples that cannot be read are left out, and added to ``unread``; without such a list,
        there is one warning at the end.

        Raises:
            AccuracyError: samples do not fit together; or none can be read, and ``unread`` is
                not given.
            CorruptFileError, UnsupportedError: a sample cannot be read, and ``strict`` is set.
        """
