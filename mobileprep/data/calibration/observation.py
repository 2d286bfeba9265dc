"""Observe the tensors of a graph in a run over samples, and derive their ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.data.options import MOVING_AVERAGE, Method
from mobileprep.data.source import Dataset
from mobileprep.data.survey import DataSurvey, FedRun, run_size, runs
from mobileprep.errors import AccuracyError
from mobileprep.formats.range_file import RangeFile
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Edge, Ref, edge, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.ranges import Histogram, ObservedValues, ends, observed_range
from mobileprep.runtime.engines.agreement import Convert
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.inputs import FedTensor

REFERENCE: Final = "numpy"

_MOST: Final = {"Relu": math.inf, "Relu6": 6.0}
# Remains of dropout draw random numbers, although these do not affect the result.
SEED: Final = 20160823
# Batches per piece: large enough to amortize sending an observation, small enough to balance load.
_BATCHES: Final = 4


class Subject(Struct, frozen=True):
    """The graph and the tensors to observe.

    Args:
        graph: the graph.
        fetches: the tensors to run it for.
        tensors: the tensors to observe; those that are not float32 are ignored.
        method: the method that derives ranges.
        inputs: the inputs of the graph.
        batch: the number of samples per run, unless the inputs have a fixed batch size.
        engine: the engine that runs the graph: "numpy", "openvino", "litert", "tensorflow", or
            "auto".
        among: with "auto", the engines to choose from in addition to numpy.
        convert: converts graphs for litert.
        outputs: with the method "auto", the outputs of the graph.
    """

    graph: Graph
    fetches: tuple[str, ...]
    tensors: tuple[Edge, ...]
    method: Method
    inputs: tuple[FedTensor, ...]
    batch: int
    engine: str = REFERENCE
    among: tuple[str, ...] = ()
    convert: Convert | None = None
    outputs: tuple[str, ...] = ()

    @property
    def piece(self) -> int:
        """The number of samples to observe together, in whole batches."""
        return run_size(self.inputs, self.batch) * _BATCHES


@dataclass
class Observation:
    """The observed values of some samples.

    Args:
        values: the values of each computed tensor.
        batches: for ``moving_average``, the minimum and maximum in each batch, by tensor.
        samples: the number of samples.
        survey: statistics of the samples; None for all but the last piece of a stream.
    """

    values: dict[Edge, ObservedValues] = field(default_factory=dict)
    batches: dict[Edge, list[tuple[float, float]]] = field(default_factory=dict)
    samples: int = 0
    survey: DataSurvey | None = None


class Watcher:
    """Runs a graph on samples and records the values of its tensors.

    Args:
        subject: the graph and the tensors to observe.
        data: the samples.
    """

    def __init__(self, subject: Subject, data: Dataset) -> None:
        self._subject = subject
        self._data = data
        self._observation = Observation()
        self._in_batch: dict[Edge, ObservedValues] = {}
        self._fault: tuple[Edge, int | None] | None = None
        self._activated = _activated(subject)
        self._befores = frozenset(before for before, _ in self._activated.values())
        self._ends: dict[Edge, tuple[float, float]] = {}
        self._run = self._by_interpreter() if subject.engine == REFERENCE else self._by_engine()

    def _by_interpreter(self) -> Callable[[Mapping[str, Array]], object]:
        subject = self._subject
        interpreter = Interpreter(
            subject.graph,
            where=self._data.name,
            seed=SEED,
            watched=subject.tensors,
            watcher=self._see,
        )
        return partial(interpreter.run, subject.fetches)

    def _by_engine(self) -> Callable[[Mapping[str, Array]], object]:
        """Return a function that runs an engine and fetches the observed tensors as results."""
        # Few calibrations use an engine.
        from mobileprep.runtime.engines.choose import open_engine
        from mobileprep.runtime.selection import needed_nodes

        subject, where = self._subject, self._data.name
        engine = open_engine(
            subject.engine,
            subject.graph,
            None,
            where=where,
            seed=SEED,
            among=subject.among,
            convert=subject.convert,
            verify=True,
        )
        fed = {edge(parse_ref(fed.name)) for fed in subject.inputs}
        outputs = [parse_ref(name) for name in subject.fetches]
        needed = {n.name for n in needed_nodes(subject.graph, outputs, fed, where)}
        tensors = [t for t in subject.tensors if t[0] in needed and t not in fed]
        fetches = [str(Ref(*tensor)) for tensor in tensors]
        watched = frozenset(subject.tensors)

        def run(feeds: Mapping[str, Array]) -> None:
            for name, array in feeds.items():
                if edge(parse_ref(name)) in watched:
                    self._see(edge(parse_ref(name)), array)
            for tensor, array in zip(tensors, engine.run(fetches, feeds), strict=True):
                self._see(tensor, array)

        return run

    def observe(self, start: int, stop: int) -> Observation:
        """Observe the samples from ``start``, a multiple of the batch size, to ``stop``."""
        self._begin()
        survey = DataSurvey(self._data.name)
        for run in self._runs(survey, start, stop):
            self._note(run)
        self._observation.survey = survey
        return self._observation

    def stream(self) -> Iterator[Observation]:
        """Observe all samples in order, and yield an observation per piece."""
        self._begin()
        survey = DataSurvey(self._data.name)
        for run in self._runs(survey):
            self._note(run)
            if self._observation.samples >= self._subject.piece:
                yield self._observation
                self._begin()
        self._observation.survey = survey
        yield self._observation

    def _runs(
        self, survey: DataSurvey, start: int = 0, stop: int | None = None
    ) -> Iterator[FedRun]:
        subject = self._subject
        return runs(
            self._data, subject.inputs, subject.batch, start=start, stop=stop, survey=survey
        )

    def _begin(self) -> None:
        self._observation, self._fault = Observation(), None
        self._in_batch.clear()

    def _note(self, run: FedRun) -> None:
        """Run the graph, and add the values to the observation."""
        self._run(run.feeds)
        if self._fault is not None:
            raise _lost(*self._fault, run, self._data.name)
        observation = self._observation
        observation.samples += run.count
        for tensor, values in self._in_batch.items():
            observation.batches.setdefault(tensor, []).append((values.low, values.high))
        self._in_batch.clear()

    def _see(self, tensor: Edge, array: Array) -> None:
        if self._fault is not None or array.dtype != np.float32 or not array.size:
            return
        limits = self._ends_of(tensor, array)
        if not self._values(tensor).add(array, limits):
            self._fault = tensor, _first_lost(array)
        if tensor in self._befores:
            self._ends[tensor] = limits

    def _ends_of(self, tensor: Edge, array: Array) -> tuple[float, float]:
        """Return the minimum and maximum; those of an activation are derived from its input's."""
        activation = self._activated.get(tensor)
        if activation is None:
            return ends(array)
        before, most = activation
        # If the activation itself is fed, its input was not computed.
        low, high = self._ends.pop(before) if before in self._ends else ends(array)
        return min(max(low, 0.0), most), min(max(high, 0.0), most)

    def _values(self, tensor: Edge) -> ObservedValues:
        method = self._subject.method
        if method.name == MOVING_AVERAGE:
            return self._in_batch.setdefault(tensor, ObservedValues())
        values = self._observation.values.get(tensor)
        if values is None:
            histogram = Histogram() if method.has_histogram else None
            values = self._observation.values[tensor] = ObservedValues(histogram=histogram)
        return values


def _activated(subject: Subject) -> dict[Edge, tuple[Edge, float]]:
    """Map each observed activation to its input and the upper bound of its output.

    Only activations that are the sole consumer of their input's node are included.
    """
    activations = {}
    for tensor in subject.tensors:
        node = subject.graph.get(tensor[0])
        most = None if node is None else _MOST.get(node.op)
        if node is None or most is None:
            continue
        before = edge(node.data_inputs[0])
        if before in subject.tensors and len(subject.graph.consumers[before[0]]) == 1:
            activations[tensor] = before, most
    return activations


def _first_lost(array: Array) -> int | None:
    """Return the first index along the first axis with NaN or infinity; None for a scalar."""
    if not array.ndim:
        return None
    lost = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    return int(lost.argmax())


def _lost(tensor: Edge, entry: int | None, run: FedRun, data: str) -> AccuracyError:
    names = run.names
    name = str(Ref(*tensor))
    # Without a batch axis, only the run is known and not the sample.
    if entry is not None and run.along == run.feeds.keys() and entry < run.fed:
        place = names[entry % run.count]
    else:
        place = names[0] if len(names) == 1 else f"one of {names[0]} to {names[-1]}"
    message = f"{data}: the tensor {name!r} is NaN or infinite for {place}; it has no range"
    hint = "look for NaN and numbers that are too large in that sample, or leave it out"
    return AccuracyError(message, hint)


Ranges = dict[Edge, tuple[float, float]]


def ranges_of(observations: Iterable[Observation], method: Method) -> tuple[Ranges, int]:
    """Return the ranges from observations of consecutive samples, and the number of samples.

    The result does not depend on how the samples are split: extremes and histograms add up exactly,
    and moving averages continue from batch to batch in order.
    """
    total = merged(observations, method.decay)
    if method.name == MOVING_AVERAGE:
        return total.averages, total.samples
    return {
        tensor: observed_range(seen, method.name, method.percentile)
        for tensor, seen in total.values.items()
        if seen.count
    }, total.samples


class Merged(Struct, frozen=True):
    """The observations of all samples.

    Args:
        values: the values of each tensor.
        averages: moving averages of the batches' minimum and maximum.
        samples: the number of samples.
    """

    values: dict[Edge, ObservedValues]
    averages: Ranges
    samples: int


def merged(observations: Iterable[Observation], decay: float = 0.0) -> Merged:
    """Merge observations of consecutive samples."""
    values: dict[Edge, ObservedValues] = {}
    averages: Ranges = {}
    samples = 0
    for observation in observations:
        samples += observation.samples
        for tensor, seen in observation.values.items():
            if tensor in values:
                values[tensor].merge(seen)
            else:
                values[tensor] = seen
        for tensor, batches in observation.batches.items():
            for low_high in batches:
                averages[tensor] = _averaged(averages.get(tensor), low_high, decay)
    return Merged(values, averages, samples)


def _averaged(
    before: tuple[float, float] | None, ends: tuple[float, float], decay: float
) -> tuple[float, float]:
    """Update the moving averages of the minimum and maximum with one batch.

    Source: ``assign_moving_average`` of TensorFlow, in float32 as there, but initialized with the
    first batch's extremes.
    """
    if before is None:
        return ends
    share = np.float32(1) - np.float32(decay)
    low, high = (
        np.float32(old) - (np.float32(old) - np.float32(new)) * share
        for old, new in zip(before, ends, strict=True)
    )
    return float(low), float(high)


_HINT: Final = "run 'mobileprep calibrate' to measure again, and check in the range file"
_SHOWN: Final = 20


def check_fresh(
    ranges: RangeFile,
    digests: Mapping[str, str],
    method: Method,
    samples: int | None,
    data: str | None,
    where: str,
) -> None:
    """Raise ``AccuracyError`` if a range file is stale for this graph, method, or data."""
    _refuse([*_as_a_whole(ranges, method, samples, data), *_tensors(ranges, digests)], where)


def check_tensors(ranges: RangeFile, digests: Mapping[str, str], where: str) -> None:
    """Raise ``AccuracyError`` if a range file was measured on another graph."""
    _refuse([*_tensors(ranges, digests)], where)


def _refuse(stale: Sequence[str], where: str) -> None:
    if not stale:
        return
    more = [f"... and {len(stale) - _SHOWN} more"] if len(stale) > _SHOWN else []
    lines = "\n  ".join([*stale[:_SHOWN], *more])
    message = f"the range file is stale:\n  {lines}"
    raise AccuracyError(message, _HINT, where)


def _as_a_whole(
    ranges: RangeFile, method: Method, samples: int | None, data: str | None
) -> Iterator[str]:
    if ranges.method != str(method):
        yield f"it was measured with {ranges.method or 'another method'}, not {method}"
    if data is not None and ranges.data != data:
        yield "it was measured on other data"
    elif samples is not None and ranges.samples > samples:
        yield f"it was measured on {ranges.samples} samples, and {samples} are asked"


def _tensors(ranges: RangeFile, digests: Mapping[str, str]) -> Iterator[str]:
    unseen = frozenset(ranges.unseen)
    for tensor, digest in digests.items():
        entry = ranges.tensors.get(tensor)
        if entry is None:
            if tensor not in unseen:
                yield f"{tensor}: it has no range"
        elif entry.graph != digest:
            yield f"{tensor}: what computes it has changed"
