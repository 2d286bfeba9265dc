"""What a run over some samples shows of a graph's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from mobileprep.calibration.methods import MOVING_AVERAGE, Method
from mobileprep.datasets.dataset import Batch, Dataset
from mobileprep.errors import AccuracyError
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import Edge, Ref, parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.numerics.histogram import Histogram
from mobileprep.numerics.observed_values import ObservedValues
from mobileprep.runtime.feeds import converted, tensor_dtype
from mobileprep.runtime.interpreter import Interpreter

# What is left of dropout draws numbers, though they change nothing where all is kept.
_SEED: Final = 20160823


@dataclass(frozen=True)
class Subject:
    """What is observed.

    Args:
        graph: the graph.
        fetches: the tensors to run it for.
        tensors: the tensors to observe, float32 or not.
        method: how ranges will come of it.
        batch: how many samples are run at once.
        fill: whether the graph takes no fewer; the last batch is then filled up with samples of
            its own, again from its first.
    """

    graph: Graph
    fetches: tuple[str, ...]
    tensors: tuple[Edge, ...]
    method: Method
    batch: int
    fill: bool


@dataclass
class Observation:
    """What some samples have shown.

    Args:
        values: of each tensor that was computed.
        batches: for ``moving_average`` the ends in each batch, by tensor.
        samples: how many there were.
    """

    values: dict[Edge, ObservedValues] = field(default_factory=dict)
    batches: dict[Edge, list[tuple[float, float]]] = field(default_factory=dict)
    samples: int = 0


class Watcher:
    """Runs a graph on samples, and notes what its tensors hold.

    Args:
        subject: the graph, and what to observe of it.
        data: the samples.
    """

    def __init__(self, subject: Subject, data: Dataset) -> None:
        self._subject = subject
        self._data = data
        self._observation = Observation()
        self._in_batch: dict[Edge, ObservedValues] = {}
        self._fault: tuple[Edge, int | None] | None = None
        self._interpreter = Interpreter(
            subject.graph,
            where=data.name,
            seed=_SEED,
            watched=subject.tensors,
            watcher=self._see,
        )

    def observe(self, start: int, stop: int) -> Observation:
        """What the samples from ``start``, a multiple of the batch, to before ``stop`` show.

        Raises:
            AccuracyError: a tensor is NaN or infinite, or a sample cannot be had.
            UsageError: the samples do not fit the graph.
        """
        subject = self._subject
        self._observation, self._fault = Observation(), None
        self._in_batch.clear()
        for batch in self._data.batches(subject.batch, start, stop):
            feeds = {name: _given(subject, name, array) for name, array in batch.feeds.items()}
            self._interpreter.run(subject.fetches, feeds)
            self._end(batch)
        return self._observation

    def _see(self, tensor: Edge, array: Array) -> None:
        if self._fault is not None or array.dtype != np.float32 or not array.size:
            return
        values = self._values(tensor)
        if not values.add(array):
            self._fault = tensor, _first_lost(array)

    def _end(self, batch: Batch) -> None:
        """A batch was run."""
        if self._fault is not None:
            raise _lost(*self._fault, batch, self._data.name)
        observation = self._observation
        observation.samples += len(batch.names)
        for tensor, values in self._in_batch.items():
            observation.batches.setdefault(tensor, []).append((values.low, values.high))
        self._in_batch.clear()

    def _values(self, tensor: Edge) -> ObservedValues:
        method = self._subject.method
        if method.name == MOVING_AVERAGE:
            return self._in_batch.setdefault(tensor, ObservedValues())
        known = self._observation.values.get(tensor)
        if known is None:
            histogram = Histogram() if method.has_histogram else None
            known = self._observation.values[tensor] = ObservedValues(histogram=histogram)
        return known


def _given(subject: Subject, name: str, array: Array) -> Array:
    """An array as the graph takes it."""
    if subject.fill and len(array) < subject.batch:
        array = array[np.arange(subject.batch) % len(array)]
    ref = parse_ref(name)
    return converted(array, tensor_dtype(subject.graph, ref) if ref.node in subject.graph else None)


def _first_lost(array: Array) -> int | None:
    """The first entry along the first axis that has NaN or infinity; None without axes."""
    if not array.ndim:
        return None
    lost = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    return int(lost.argmax())


def _lost(tensor: Edge, entry: int | None, batch: Batch, data: str) -> AccuracyError:
    names: Sequence[str] = batch.names
    sizes: Mapping[str, Array] = batch.feeds
    name = str(Ref(*tensor))
    # A tensor whose first axis counts no samples says no more than which batch it was.
    is_each = entry is not None and all(len(a) == len(names) for a in sizes.values())
    if is_each and entry is not None and entry < len(names):
        place = names[entry]
    else:
        place = names[0] if len(names) == 1 else f"one of {names[0]} to {names[-1]}"
    message = f"{data}: the tensor {name!r} is NaN or infinite for {place}; it has no range"
    hint = "look for NaN and numbers that are too large in that sample, or leave it out"
    return AccuracyError(message, hint)
