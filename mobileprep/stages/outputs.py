"""What a graph gave for samples, kept batch by batch so that it never is in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from mobileprep.errors import InternalError
from mobileprep.formats.arrays import array_writer, each_array
from mobileprep.fsio import atomic_writer
from mobileprep.ir.tensor import Array


class KeepOutputs(Protocol):
    """Keeps what a graph gave for one more batch."""

    def __call__(self, outputs: Sequence[Array]) -> None:
        """Write the outputs, in the same order each time."""


@contextmanager
def kept_outputs(path: Path) -> Iterator[KeepOutputs]:
    """Inside the block outputs go into a file, which is there after it.

    Args:
        path: the file, an ``.npz`` with an array ``batch/output`` for each, numbered from 0 on.
    """
    number = 0
    with atomic_writer(path) as stream, array_writer(stream) as write:

        def keep(outputs: Sequence[Array]) -> None:
            nonlocal number
            for at, array in enumerate(outputs):
                write(f"{number}/{at}", array)
            number += 1

        yield keep


def each_batch(path: Path, outputs: int) -> Iterator[list[Array]]:
    """What ``kept_outputs`` has kept, batch by batch.

    Args:
        path: the file.
        outputs: how many there are in a batch.

    Raises:
        CorruptFileError: the file is missing or damaged.
    """
    batch: list[Array] = []
    for name, array in each_array(path):
        if int(name.partition("/")[2]) != len(batch):
            message = f"{path}: the outputs are out of order"
            raise InternalError(message)
        batch.append(array)
        if len(batch) == outputs:
            yield batch
            batch = []
