"""What a run over some samples shows of a graph's tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.data.options import MOVING_AVERAGE, Method
from mobileprep.data.source import Dataset
from mobileprep.data.survey import DataSurvey, FedRun, run_size, runs
from mobileprep.errors import AccuracyError
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Edge, Ref, edge, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.ranges import Histogram, ObservedValues, ends
from mobileprep.runtime.engines.agreement import Convert
from mobileprep.runtime.interpreter import Interpreter
from mobileprep.runtime.sampling.inputs import FedTensor

REFERENCE: Final = "numpy"

_MOST: Final = {"Relu": math.inf, "Relu6": 6.0}
# What is left of dropout draws numbers, though they change nothing where all is kept.
_SEED: Final = 20160823
# Batches of a piece: enough to pay for sending what it shows, few enough to share out evenly.
_BATCHES: Final = 4


class Subject(Struct, frozen=True):
    """What is observed.

    Args:
        graph: the graph.
        fetches: the tensors to run it for.
        tensors: the tensors to observe, float32 or not.
        method: how ranges will come of it.
        inputs: the graph's inputs.
        batch: how many samples are run at once, where the inputs do not say.
        engine: the engine that runs the graph: "numpy", "openvino", "litert", "tensorflow", or
            "auto".
        among: with "auto", the engines to choose from, numpy besides.
        convert: converts graphs for litert.
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

    @property
    def piece(self) -> int:
        """How many samples are observed together: whole batches."""
        return run_size(self.inputs, self.batch) * _BATCHES


@dataclass
class Observation:
    """What some samples have shown.

    Args:
        values: of each tensor that was computed.
        batches: for ``moving_average`` the ends in each batch, by tensor.
        samples: how many there were.
        survey: what is to be known of the samples, were these all of them; nothing for a piece
            that others follow from the same reading.
    """

    values: dict[Edge, ObservedValues] = field(default_factory=dict)
    batches: dict[Edge, list[tuple[float, float]]] = field(default_factory=dict)
    samples: int = 0
    survey: DataSurvey | None = None


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
        self._activated = _activated(subject)
        self._befores = frozenset(before for before, _ in self._activated.values())
        self._ends: dict[Edge, tuple[float, float]] = {}
        self._run = self._by_interpreter() if subject.engine == REFERENCE else self._by_engine()

    def _by_interpreter(self) -> Callable[[Mapping[str, Array]], object]:
        subject = self._subject
        interpreter = Interpreter(
            subject.graph,
            where=self._data.name,
            seed=_SEED,
            watched=subject.tensors,
            watcher=self._see,
        )
        return partial(interpreter.run, subject.fetches)

    def _by_engine(self) -> Callable[[Mapping[str, Array]], object]:
        """Fetch the observed tensors that the outputs need as results of an engine."""
        # Few calibrations use an engine.
        from mobileprep.runtime.engines.choose import open_engine
        from mobileprep.runtime.selection import needed_nodes

        subject, where = self._subject, self._data.name
        engine = open_engine(
            subject.engine,
            subject.graph,
            None,
            where=where,
            seed=_SEED,
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
        """What the samples from ``start``, a multiple of the batch, to before ``stop`` show."""
        self._begin()
        survey = DataSurvey(self._data.name)
        for run in self._runs(survey, start, stop):
            self._note(run)
        self._observation.survey = survey
        return self._observation

    def stream(self) -> Iterator[Observation]:
        """What all samples show, piece by piece, read from the first to the last."""
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
        """Run the graph."""
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
        found = self._ends_of(tensor, array)
        if not self._values(tensor).add(array, found):
            self._fault = tensor, _first_lost(array)
        if tensor in self._befores:
            self._ends[tensor] = found

    def _ends_of(self, tensor: Edge, array: Array) -> tuple[float, float]:
        """The least and the greatest value; an activation's follow from those before it."""
        known = self._activated.get(tensor)
        if known is None:
            return ends(array)
        before, most = known
        # A tensor that is fed was not computed from the one before.
        low, high = self._ends.pop(before) if before in self._ends else ends(array)
        return min(max(low, 0.0), most), min(max(high, 0.0), most)

    def _values(self, tensor: Edge) -> ObservedValues:
        method = self._subject.method
        if method.name == MOVING_AVERAGE:
            return self._in_batch.setdefault(tensor, ObservedValues())
        known = self._observation.values.get(tensor)
        if known is None:
            histogram = Histogram() if method.has_histogram else None
            known = self._observation.values[tensor] = ObservedValues(histogram=histogram)
        return known


def _activated(subject: Subject) -> dict[Edge, tuple[Edge, float]]:
    """What activations of observed tensors give, with that tensor and the greatest result.

    Only where nothing else reads the tensor are the ends of its last value those of the
    activation's input.
    """
    found = {}
    for tensor in subject.tensors:
        node = subject.graph.get(tensor[0])
        most = None if node is None else _MOST.get(node.op)
        if node is None or most is None:
            continue
        before = edge(node.data_inputs[0])
        if before in subject.tensors and len(subject.graph.consumers[before[0]]) == 1:
            found[tensor] = before, most
    return found


def _first_lost(array: Array) -> int | None:
    """The first entry along the first axis that has NaN or infinity; None without axes."""
    if not array.ndim:
        return None
    lost = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    return int(lost.argmax())


def _lost(tensor: Edge, entry: int | None, run: FedRun, data: str) -> AccuracyError:
    names = run.names
    name = str(Ref(*tensor))
    # A tensor whose first axis counts no samples says no more than which run it was.
    if entry is not None and run.along == run.feeds.keys() and entry < run.fed:
        place = names[entry % run.count]
    else:
        place = names[0] if len(names) == 1 else f"one of {names[0]} to {names[-1]}"
    message = f"{data}: the tensor {name!r} is NaN or infinite for {place}; it has no range"
    hint = "look for NaN and numbers that are too large in that sample, or leave it out"
    return AccuracyError(message, hint)
