"""Outputs of evaluated graphs, kept in files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
from msgspec import Struct

from mobileprep.core.files import atomic_writer
from mobileprep.formats.arrays import array_writer, each_array
from mobileprep.graph.tensor import Array


class KeepOutputs(Protocol):
    """Keeps what a graph gave for one more batch."""

    def __call__(self, outputs: Sequence[Array], count: int) -> None:
        """Write the outputs for ``count`` samples, in the same order each time."""


@contextmanager
def kept_outputs(path: Path) -> Iterator[KeepOutputs]:
    """Inside the block outputs go into a file, which is there after it.

    Args:
        path: the file, an ``.npz`` with an array ``batch/output`` for each, numbered from 0 on,
            after ``batch/count`` with the number of samples.
    """
    number = 0
    with atomic_writer(path) as stream, array_writer(stream) as write:

        def keep(outputs: Sequence[Array], count: int) -> None:
            nonlocal number
            write(f"{number}/count", np.asarray(count, np.int64))
            for at, array in enumerate(outputs):
                write(f"{number}/{at}", array)
            number += 1

        yield keep


class KeptOutputs(Struct, frozen=True):
    """Outputs that ``kept_outputs`` has kept.

    Args:
        path: the file.
        outputs: how many there are in a batch.
    """

    path: Path
    outputs: int

    def each_batch(self) -> Iterator[tuple[int, list[Array]]]:
        """The batches as they were kept, and how many samples each has."""
        batch: list[Array] = []
        for _, array in each_array(self.path):
            batch.append(array)
            if len(batch) > self.outputs:
                yield int(batch[0]), batch[1:]
                batch = []


Pair: TypeAlias = tuple[Array, Array]


def each_pair(first: KeptOutputs, second: KeptOutputs) -> Iterator[tuple[int, list[Pair | None]]]:
    """What two graphs gave for the same samples, also where one took them in other batches.

    Yields:
        How many samples, and both arrays of each output; None where an output has no entry for
        each sample, so that batches of other sizes cannot be joined.
    """
    sides = _Side(first), _Side(second)
    for _ in iter(lambda: all(side.read() for side in sides), False):
        while sides[0].count != sides[1].count:
            if not min(sides, key=lambda side: side.count).read():
                return
        count = sides[0].count
        taken = zip(*(side.take() for side in sides), strict=True)
        yield count, [None if x is None or y is None else (x, y) for x, y in taken]


class _Side:
    """Batches that were read and not yet taken."""

    def __init__(self, kept: KeptOutputs) -> None:
        self.count = 0
        self._batches = kept.each_batch()
        self._read: list[tuple[int, list[Array]]] = []

    def read(self) -> bool:
        """Read one more; whether there was one."""
        found = next(self._batches, None)
        if found is None:
            return False
        self._read.append(found)
        self.count += found[0]
        return True

    def take(self) -> list[Array | None]:
        """All that were read as one batch."""
        counts, batches = zip(*self._read, strict=True)
        self._read, self.count = [], 0
        if len(batches) == 1:
            return list(batches[0])
        return [_joined(pieces, counts) for pieces in zip(*batches, strict=True)]


def _joined(pieces: Sequence[Array], counts: Sequence[int]) -> Array | None:
    if not all(p.ndim and len(p) == n for p, n in zip(pieces, counts, strict=True)):
        return None
    alike = len({piece.shape[1:] for piece in pieces}) == 1
    return np.concatenate(pieces) if alike else None
