"""What a reader of samples is given, and what it gives."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Final, Protocol

from mobileprep.datasets.dataset import Batch, Unread
from mobileprep.errors import AccuracyError, MobileprepError, nearest_hint
from mobileprep.frozen import dataclass
from mobileprep.options.data import DataKind, Reading


@dataclass(frozen=True)
class DataFiles:
    """Files of samples.

    Args:
        name: what messages call them.
        root: the file or folder.
        kind: what it is; None where its content tells.
        reading: how it becomes samples.
        labels: the file of labels, where there is one.
        classes: the file that lists the names of the classes, where there is one.
    """

    name: str
    root: Path
    kind: DataKind | None = None
    reading: Reading = field(default_factory=Reading)
    labels: Path | None = None
    classes: Path | None = None


@dataclass(frozen=True)
class SampleChoice:
    """Which samples are taken.

    Args:
        samples: how many; None for all.
        seed: draws them; None takes the first of each of as many equal parts.
        strict: whether one that cannot be read is an error.
        exactly: whether fewer than ``samples`` are an error.
    """

    samples: int | None = None
    seed: int | None = None
    strict: bool = False
    exactly: bool = True

    def indices(self, count: int, name: str) -> Sequence[int]:
        """The samples out of ``count``, in order.

        Raises:
            AccuracyError: there are none, or too few.
        """
        if not count:
            raise no_samples(name)
        wanted = count if self.samples is None else self.samples
        if wanted > count and self.exactly:
            raise too_few(name, count, wanted)
        if wanted >= count:
            return range(count)
        return [self._nth(at, wanted, count) for at in range(wanted)]

    def _nth(self, at: int, wanted: int, count: int) -> int:
        first, end = at * count // wanted, (at + 1) * count // wanted
        if self.seed is None:
            return first
        # A digest, since generators of random numbers change from release to release.
        drawn = hashlib.sha256(f"{self.seed} {at}".encode()).digest()[:8]
        return first + int.from_bytes(drawn, "little") % (end - first)


class SampleSource(Protocol):
    """Samples in files, each read when it is asked for, from any thread."""

    def __len__(self) -> int:
        """How many samples the files hold."""

    def read(self, indices: Sequence[int]) -> tuple[Batch | None, Sequence[Unread]]:
        """Samples by number, and those that cannot be read; None where that is all of them.

        Raises:
            AccuracyError: samples or labels do not fit the model, or each other.
        """


_HOW_TO_LABEL: Final = (
    "name the labels that it has by 'labels', or take a metric that needs none, such as 'agreement'"
)


class NoLabelsError(AccuracyError):
    """The data has no labels of the name that is asked for, nor any of nearly that name.

    Without a hint of its own, it tells how labels are named and how to do without.
    """

    def __init__(self, message: str = "", hint: str = "", where: str = "") -> None:
        super().__init__(message, hint or _HOW_TO_LABEL, where)


def no_samples(name: str, what: str = "samples") -> AccuracyError:
    """The error for data without anything to read."""
    return AccuracyError(f"{name} holds no {what}", "name data that has some")


def too_few(name: str, count: int, wanted: int) -> AccuracyError:
    """The error for data with fewer samples than are asked for."""
    message = f"{name} has {count:,} samples, and {wanted:,} are asked for"
    return AccuracyError(message, f"add samples, or write 'samples: {count}'")


def at_sample(error: MobileprepError, name: str) -> MobileprepError:
    """An error about a sample, naming it."""
    return error.at(f"{name}, {error.where}" if error.where else name)


def only_keys(given: Mapping[str, object], known: Sequence[str], what: str) -> None:
    """Refuse names of inputs that the model does not have.

    Raises:
        AccuracyError: one of them is not known.
    """
    for name in given:
        if name not in known:
            message = f"{what} names the input {name!r}; the model has {', '.join(known)}"
            raise AccuracyError(message, nearest_hint(name, known))
