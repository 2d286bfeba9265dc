"""Files with the outputs of evaluated graphs."""

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
    """Writer for the outputs of one batch."""

    def __call__(self, outputs: Sequence[Array], count: int) -> None:
        """Write the outputs for ``count`` samples, in the same order each time."""


@contextmanager
def kept_outputs(path: Path) -> Iterator[KeepOutputs]:
    """Open a file for outputs. It exists after the block.

    Args:
        path: path of an ``.npz`` file with an array ``batch/output`` for each output, numbered from
            0, after ``batch/count`` with the number of samples.

    Yields:
        The writer.
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
    """Outputs that ``kept_outputs`` wrote.

    Args:
        path: the file.
        outputs: number of outputs in a batch.
    """

    path: Path
    outputs: int

    def each_batch(self) -> Iterator[tuple[int, list[Array]]]:
        """Yield the number of samples and the outputs of each batch."""
        batch: list[Array] = []
        for _, array in each_array(self.path):
            batch.append(array)
            if len(batch) > self.outputs:
                yield int(batch[0]), batch[1:]
                batch = []


Pair: TypeAlias = tuple[Array, Array]


def each_pair(first: KeptOutputs, second: KeptOutputs) -> Iterator[tuple[int, list[Pair | None]]]:
    """Pair the outputs of two graphs for the same samples. Their batch sizes may differ.

    Yields:
        Number of samples, and both arrays of each output; None for an output without an entry for
        each sample, because batches of different sizes cannot be joined.
    """
    sides = _Side(first), _Side(second)
    for _ in iter(lambda: all(side.read() for side in sides), False):
        while sides[0].count != sides[1].count:
            if not min(sides, key=lambda side: side.count).read():
                return
        count = sides[0].count
        arrays = zip(*(side.take() for side in sides), strict=True)
        yield count, [None if x is None or y is None else (x, y) for x, y in arrays]


class _Side:
    """Batches that were read but not yet returned."""

    def __init__(self, outputs: KeptOutputs) -> None:
        self.count = 0
        self._batches = outputs.each_batch()
        self._read: list[tuple[int, list[Array]]] = []

    def read(self) -> bool:
        """Read a batch, and return whether there was one."""
        batch = next(self._batches, None)
        if batch is None:
            return False
        self._read.append(batch)
        self.count += batch[0]
        return True

    def take(self) -> list[Array | None]:
        """Return all batches read so far as one batch, and clear them."""
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
