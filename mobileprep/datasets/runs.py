"""Batches of samples cut into what a graph takes at once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from mobileprep.datasets.dataset import Batch, Dataset
from mobileprep.errors import AccuracyError
from mobileprep.ir.tensor import Array
from mobileprep.runtime.sampling.inputs import FedTensor

_LEAVE_OUT: Final = "leave them out of the data"


@dataclass(frozen=True)
class FedRun:
    """What a graph is fed once.

    Args:
        feeds: an array for each input, as the input takes it.
        count: how many samples are in it.
        fed: how many it is fed: more than ``count`` where the graph insists on a size, the first
            samples of the run being repeated.
        labels: an entry for each sample, or None where the data has none.
        names: of the samples, for messages.
        along: the inputs that have the samples along their first axis.
        fixed: whether the graph insists on ``fed``.
    """

    feeds: Mapping[str, Array]
    count: int
    fed: int
    labels: Array | None
    names: tuple[str, ...]
    along: frozenset[str] = frozenset()
    fixed: bool = False

    def head(self, count: int) -> FedRun:
        """The first samples of it, where the graph takes fewer."""
        if self.fixed or count >= self.count:
            return self
        feeds = {name: a[:count] if name in self.along else a for name, a in self.feeds.items()}
        labels = None if self.labels is None else self.labels[:count]
        return replace(
            self, feeds=feeds, count=count, fed=count, labels=labels, names=self.names[:count]
        )


def runs(
    dataset: Dataset,
    inputs: Sequence[FedTensor],
    size: int,
    *,
    start: int = 0,
    stop: int | None = None,
) -> Iterator[FedRun]:
    """The samples ``start`` to ``stop`` of a data set, as a graph takes them.

    An input whose samples have as many axes as it has takes one sample at a time, which then holds
    for all; but a value that is the same for all samples of a batch, beside an input that takes
    batches, is fed once.

    Args:
        dataset: the samples.
        inputs: the graph's inputs.
        size: how many samples are fed at once, where the graph does not say.
        start: the first sample.
        stop: the one after the last; None for all.

    Raises:
        AccuracyError: samples cannot be read or do not fit, or have no number at all, or all
            samples hold one value throughout.
        CorruptFileError, UnsupportedError: see ``Dataset.batches``.
    """
    spread = _Spread(dataset.name)
    for batch in dataset.batches(_fixed(inputs) or size, start, stop):
        spread.look(batch)
        yield from _cut(batch, inputs)
    spread.check()


def _fixed(inputs: Iterable[FedTensor]) -> int:
    """How many samples inputs insist on by their first axes, or 0 for any number."""
    return next((fed.shape[0] for fed in inputs if fed.shape and fed.shape[0] > 0), 0)


def _cut(batch: Batch, inputs: Sequence[FedTensor]) -> Iterator[FedRun]:
    ranks = {fed.name: None if fed.shape is None else len(fed.shape) for fed in inputs}
    single = {name for name, array in batch.feeds.items() if array.ndim - 1 == ranks[name]}
    together = batch.feeds.keys() - single
    fixed = _fixed(fed for fed in inputs if fed.name in together)
    feeds = dict(batch.feeds)
    if not single:
        yield _whole(batch, feeds, together, fixed)
    elif together and all(_same(feeds[name]) for name in single):
        feeds |= {name: np.asarray(feeds[name][0]) for name in single}
        yield _whole(batch, feeds, together, fixed)
    else:
        yield from _apart(batch, single)


def _apart(batch: Batch, single: Container[str]) -> Iterator[FedRun]:
    for at, name in enumerate(batch.names):
        one = {
            n: np.asarray(array[at]) if n in single else array[at : at + 1]
            for n, array in batch.feeds.items()
        }
        labels = None if batch.labels is None else batch.labels[at : at + 1]
        yield FedRun(one, 1, 1, labels, (name,))


def _whole(batch: Batch, feeds: Mapping[str, Array], along: Set[str], fixed: int) -> FedRun:
    count = len(batch.names)
    fed = fixed or count
    if fed > count:
        filled = np.arange(fed) % count
        feeds = {name: a[filled] if name in along else a for name, a in feeds.items()}
    return FedRun(feeds, count, fed, batch.labels, batch.names, frozenset(along), bool(fixed))


def _same(array: Array) -> bool:
    return bool((array == array[:1]).all())


class _Spread:
    """Whether samples hold numbers, and more than one.

    Args:
        data: what messages call the data.
    """

    def __init__(self, data: str) -> None:
        self._data = data
        self._values: dict[str, tuple[float, float]] = {}
        self._elements = 0

    def look(self, batch: Batch) -> None:
        for name, array in batch.feeds.items():
            if array.dtype.kind not in "iufb":
                self._values[name] = (0, 1)
                continue
            lost = _all_nan(array)
            if len(lost):
                message = f"{self._data}: {len(lost)} of {len(batch.names)} samples of {name!r} "
                message += f"are NaN throughout, the first of them {batch.names[lost[0]]}"
                raise AccuracyError(message, _LEAVE_OUT)
            self._elements = max(self._elements, array.size)
            self._widen(name, array)

    def check(self) -> None:
        """Raises:
        AccuracyError: every input got one value alone.
        """
        if self._elements < 2 or any(low != high for low, high in self._values.values()):
            return
        told = ", ".join(f"{name!r} is {low:g}" for name, (low, _) in self._values.items())
        message = f"{self._data}: all samples hold one value: {told} throughout"
        raise AccuracyError(message, "name data that differs from sample to sample")

    def _widen(self, name: str, array: Array) -> None:
        low, high = self._values.get(name, (np.inf, -np.inf))
        # What differs already needs no second look.
        if low >= high and array.size:
            low, high = min(low, float(array.min())), max(high, float(array.max()))
            self._values[name] = low, high


def _all_nan(array: Array) -> Array:
    """The samples that have no number at all."""
    if array.dtype.kind != "f" or not array.size:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.isnan(array.reshape(len(array), -1)).all(axis=1))
