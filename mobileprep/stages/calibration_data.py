"""The samples of a calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mobileprep.datasets.dataset import Batch, Dataset
from mobileprep.errors import AccuracyError
from mobileprep.formats.arrays import read_arrays
from mobileprep.ir.tensor import Array
from mobileprep.numerics.labels import counts_fault
from mobileprep.plan.spec import Files
from mobileprep.runtime.sampling.recorded import array_of


def samples_of(files: Files, inputs: Sequence[str], samples: int | None, seed: int) -> Dataset:
    """The samples that a recipe asks for.

    Args:
        files: the data.
        inputs: what is fed.
        samples: how many, None for all.
        seed: which, where there are more.

    Raises:
        AccuracyError: arrays are missing, do not fit together, or are fewer than asked.
        CorruptFileError: the data cannot be read.
    """
    arrays = read_arrays(files.root)
    feeds = {name: array_of(arrays, name, files.name) for name in inputs}
    lengths = {name: len(a) if a.ndim else 0 for name, a in feeds.items()}
    count = max(lengths.values(), default=0)
    fault = counts_fault(count, lengths)
    if fault is not None:
        raise AccuracyError(*fault)
    wanted = samples or count
    if wanted > count:
        message = f"{files.name} has {count} samples, and the calibration asks for {wanted}"
        raise AccuracyError(message, f"write 'samples: {count}', or leave it out")
    chosen = np.sort(np.random.default_rng(seed).permutation(count)[:wanted])
    return _Samples(files.name, feeds, chosen)


@dataclass(frozen=True)
class _Samples:
    """Some samples of arrays."""

    name: str
    feeds: Mapping[str, Array]
    chosen: Array

    def __len__(self) -> int:
        return len(self.chosen)

    def batches(self, size: int, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        """See ``Dataset.batches``."""
        end = len(self.chosen) if stop is None else stop
        for first in range(start, end, size):
            places = self.chosen[first : min(first + size, end)]
            feeds = {name: array[places] for name, array in self.feeds.items()}
            yield Batch(feeds, None, tuple(f"sample {place}" for place in places))
