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


def observe(subject: Subject, data: Dataset, start: int, stop: int) -> Observation:
    """Run a graph on the samples from ``start`` to ``stop``, and note what its tensors hold.

    Args:
        subject: the graph, and what to observe of it.
        data: the samples.
        start: the first, a multiple of ``subject.batch``.
        stop: the one after the last.

    Raises:
        AccuracyError: a tensor is NaN or infinite, or a sample cannot be had.
        UsageError: the samples do not fit the graph.
    """
    watching = _Watching(subject)
    interpreter = Interpreter(
        subject.graph,
        where=data.name,
        seed=_SEED,
        watched=subject.tensors,
        watcher=watching.see,
    )
    for batch in data.batches(subject.batch, start, stop):
        feeds = {name: _given(subject, name, array) for name, array in batch.feeds.items()}
        interpreter.run(subject.fetches, feeds)
        watching.end(batch, data.name)
    return watching.observation


def _given(subject: Subject, name: str, array: Array) -> Array:
    """An array as the graph takes it."""
    if subject.fill and len(array) < subject.batch:
        array = array[np.arange(subject.batch) % len(array)]
    ref = parse_ref(name)
    return converted(array, tensor_dtype(subject.graph, ref) if ref.node in subject.graph else None)


class _Watching:
    """Takes note of tensors as they are computed."""

    def __init__(self, subject: Subject) -> None:
        self.observation = Observation()
        self._method = subject.method
        self._in_batch: dict[Edge, ObservedValues] = {}
        self._fault: tuple[Edge, int | None] | None = None

    def see(self, tensor: Edge, array: Array) -> None:
        """Take note of a tensor that was computed."""
        if self._fault is not None or array.dtype != np.float32 or not array.size:
            return
        values = self._values(tensor)
        if not values.add(array):
            self._fault = tensor, _first_lost(array)

    def end(self, batch: Batch, data: str) -> None:
        """A batch was run.

        Raises:
            AccuracyError: a tensor was NaN or infinite.
        """
        if self._fault is not None:
            raise _lost(*self._fault, batch, data)
        self.observation.samples += len(batch.names)
        for tensor, values in self._in_batch.items():
            self.observation.batches.setdefault(tensor, []).append((values.low, values.high))
        self._in_batch.clear()

    def _values(self, tensor: Edge) -> ObservedValues:
        if self._method.name == MOVING_AVERAGE:
            return self._in_batch.setdefault(tensor, ObservedValues())
        known = self.observation.values.get(tensor)
        if known is None:
            histogram = Histogram() if self._method.has_histogram else None
            known = self.observation.values[tensor] = ObservedValues(histogram=histogram)
        return known


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
