"""Batches of samples cut into what a graph takes at once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from mobileprep.datasets.dataset import Batch, Dataset
from mobileprep.datasets.survey import DataSurvey
from mobileprep.errors import MemoryLimitError
from mobileprep.ir.tensor import Array
from mobileprep.numerics.allocation import OverBudgetError, check_total
from mobileprep.runtime.sampling.inputs import FedTensor


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
    survey: DataSurvey | None = None,
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
        survey: takes note of the samples, where these are not all of them: the caller checks it
            once it has them together.

    Raises:
        AccuracyError: samples cannot be read or do not fit, or have no number at all; or all
            samples hold one value throughout, and ``survey`` is not given.
        CorruptFileError, UnsupportedError: see ``Dataset.batches``.
    """
    own = DataSurvey(dataset.name) if survey is None else survey
    unread = None if survey is None else survey.unread
    for batch in dataset.batches(run_size(inputs, size), start, stop, unread):
        own.look(batch)
        yield from _cut(batch, inputs)
    if survey is None:
        own.check_spread()


def run_size(inputs: Iterable[FedTensor], size: int) -> int:
    """How many samples are read at once: what the inputs insist on, or else ``size``."""
    return _fixed(inputs) or size


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
        _check_filled([feeds[name] for name in along], fed)
        filled = np.arange(fed) % count
        feeds = {name: a[filled] if name in along else a for name, a in feeds.items()}
    return FedRun(feeds, count, fed, batch.labels, batch.names, frozenset(along), bool(fixed))


def _check_filled(arrays: Iterable[Array], fed: int) -> None:
    """Refuse batches that inputs insist on and no machine holds, however few the samples.

    Raises:
        MemoryLimitError: they take more than a run may.
    """
    wanted = fed * (np.dtype(np.intp).itemsize + sum(array[:1].nbytes for array in arrays))
    try:
        check_total(wanted, f"a batch of {fed:,} samples, on which the inputs insist,")
    except OverBudgetError as error:
        raise MemoryLimitError(str(error), "let -1 be the first size of the inputs") from error


def _same(array: Array) -> bool:
    return bool((array == array[:1]).all())
