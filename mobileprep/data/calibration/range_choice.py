"""Choose the range of each tensor by the error that it causes in the ops that read the tensor."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.data.calibration.observation import (
    SEED,
    Observation,
    Ranges,
    Subject,
    merged,
    ranges_of,
)
from mobileprep.data.options import AUTO
from mobileprep.data.source import Dataset
from mobileprep.data.survey import DataSurvey, run_size, runs
from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import tensor_dtype
from mobileprep.graph.reachability import closure, conditional_nodes, execution_order
from mobileprep.graph.refs import Edge, Ref, edge, parse_ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.parallel import all_processors
from mobileprep.ops.numerics.ranges import USUAL_PERCENTILE, ObservedValues, Range, observed_range
from mobileprep.runtime.interpreter import Interpreter, runs_functions

_SAMPLES: Final = 32
# Samples whose values are in memory at once, and the number of these values: 256 MB.
_CHUNK: Final = 8
_MOST_VALUES: Final = 1 << 26
_METHODS: Final = (("percentile", USUAL_PERCENTILE), ("mse", 0.0), ("entropy", 0.0))
_STEPS: Final = 255
_LARGEST: Final = float(np.finfo(np.float32).max)
# Share by which values may exceed those of the calibration: of outputs in 8 bits, where clipping is
# visible and steps are little coarser, and of all tensors in 16 bits, where one bit is spare.
_HEADROOM: Final = 0.125
_HEADROOM_16: Final = 1.0
# Closer ends, as a share of the whole width, count as one.
_NEAR: Final = 0.03
# Of ranges with nearly the least error, the narrowest is best: later ops dampen the error of a few
# clipped values more than that of larger steps for all of them.
_NEARLY: Final = 1.25
# Ranges that are so much worse on the first samples are not tried on more.
_MUCH_WORSE: Final = 1.5


class Calibrated(Struct, frozen=True):
    """The ranges from a calibration.

    Args:
        ranges: the range of each tensor.
        sixteen: with the method ``auto``, the range of each tensor in 16 bits, where clipping would
            gain nothing.
        samples: the number of samples.
    """

    ranges: Ranges
    sixteen: Ranges
    samples: int


def calibrated(subject: Subject, data: Dataset, observations: Iterable[Observation]) -> Calibrated:
    """Return the ranges from the observations of all samples, by the method of the subject."""
    if subject.method.name != AUTO:
        ranges, samples = ranges_of(observations, subject.method)
        return Calibrated(ranges, {}, samples)
    total = merged(observations)
    seen = {tensor: one for tensor, one in total.values.items() if one.count}
    per_sample = sum(one.count for one in seen.values()) // max(total.samples, 1)
    # Runs of single ops are short, so all of them share the threads.
    with all_processors():
        ranges = _Choice(subject, seen).ranges(_chunks(subject, data, per_sample))
    sixteen = {tensor: _whole(one, _HEADROOM_16) for tensor, one in seen.items()}
    return Calibrated(ranges, sixteen, total.samples)


def _chunks(
    subject: Subject, data: Dataset, per_sample: int
) -> Iterator[list[Mapping[str, Array]]]:
    """Yield the feeds of runs; those of each chunk are evenly spread over the data.

    Args:
        per_sample: the number of values of all tensors.
    """
    size = run_size(subject.inputs, 1)
    count = -(-len(data) // size)
    most = max(min(_SAMPLES, len(data)) // size, 1)
    fitting = max(min(_CHUNK, _MOST_VALUES // max(per_sample, 1)) // size, 1)
    stride = -(-most // fitting)
    for first in range(stride):
        feeds: list[Mapping[str, Array]] = []
        for at in range(first, most, stride):
            start = at * count // most * size
            stop = min(start + size, len(data))
            survey = DataSurvey(data.name)
            chosen = runs(data, subject.inputs, size, start=start, stop=stop, survey=survey)
            feeds += [run.feeds for run in chosen]
        yield feeds


def _whole(values: ObservedValues, headroom: float = 0.0) -> Range:
    """Return the range of all values, and of others that exceed them by a share."""
    ends = np.array([values.low, values.high]) * (1 + headroom)
    low, high = np.clip(ends, -_LARGEST, _LARGEST).astype(np.float32)
    return float(low), float(high)


def _candidates(values: ObservedValues) -> list[Range]:
    """Return the whole range, and those of other methods at both ends and at one."""
    whole = _whole(values)
    near = _NEAR * (whole[1] - whole[0])
    tried = [whole]
    for method, percentile in _METHODS:
        low, high = observed_range(values, method, percentile)
        for one in ((low, high), (low, whole[1]), (whole[0], high)):
            if all(max(abs(one[0] - x[0]), abs(one[1] - x[1])) > near for x in tried):
                tried.append(one)
    return tried


@dataclass(eq=False)
class Trial:
    """The comparison of the ranges of a tensor in the output of one of its readers.

    Args:
        tensor: the tensor.
        reader: the reader.
        errors: the squared error for each range, by run.
        powers: the squared output, by run.
    """

    tensor: Edge
    reader: Reader
    errors: list[NDArray[np.float64]] = field(default_factory=list)
    powers: list[float] = field(default_factory=list)

    def shares(self) -> NDArray[np.float64]:
        """Return the mean error of each range as a share of the output's power in the same run.

        A run with little power counts as the median, and one with outliers counts as any other.
        """
        powers = np.maximum(self.powers, np.median(self.powers))[:, np.newaxis]
        shares = np.mean(self.errors / np.where(powers, powers, 1.0), axis=0)
        return np.where(np.isnan(shares), np.inf, shares)


class _Choice:
    """Chooses the range of each tensor with the least error in the outputs of its readers.

    Each range is tried alone on a few samples: the tensor is rounded to its 256 levels, and
    everything else is float. The squared errors of the readers are added as shares of the power of
    their outputs.

    Outputs of the graph, and tensors that are compared or sorted, keep all their values, and have
    some headroom. The largest inputs of a softmax, which decide its result, are not clipped.
    Tensors in branches and loops cannot be tried, and have the range of the method ``percentile``.

    Args:
        subject: the graph.
        values: the observed values of its tensors.
    """

    def __init__(self, subject: Subject, values: Mapping[Edge, ObservedValues]) -> None:
        self._graph = subject.graph
        self._values = values
        self._inputs = frozenset(edge(parse_ref(fed.name)) for fed in subject.inputs)
        outputs = [edge(parse_ref(name)) for name in subject.outputs]
        self._search = ReaderSearch(self._graph, values, self._inputs, outputs)
        self._interpreter = Interpreter(self._graph, where="calibration", seed=SEED)
        self._ranges = {tensor: _whole(one) for tensor, one in values.items()}
        self._candidates: dict[Edge, list[Range]] = {}
        self._trials: dict[Edge, list[Trial]] = {}
        for tensor in values:
            self._prepare(tensor)

    def ranges(self, chunks: Iterable[Sequence[Mapping[str, Array]]]) -> Ranges:
        """Return the range of each tensor.

        Args:
            chunks: the feeds of runs. The values of a chunk are in memory at the same time.
        """
        errors = {tensor: np.zeros(len(tried)) for tensor, tried in self._candidates.items()}
        for feeds in chunks:
            errors = self._compared(feeds, errors)
        for tensor, error in errors.items():
            if 0 < error.min() < np.inf:
                best = np.flatnonzero(error <= error.min() * _NEARLY)
                fitting = [self._candidates[tensor][at] for at in best]
                self._ranges[tensor] = min(fitting, key=lambda one: one[1] - one[0])
        return self._ranges

    def _prepare(self, tensor: Edge) -> None:
        """Add the trials of a tensor, or set the range of one that needs none."""
        found = self._search.of(tensor)
        if found is None:
            self._ranges[tensor] = observed_range(self._values[tensor], *_METHODS[0])
            return
        if not found.readers:
            self._ranges[tensor] = _whole(self._values[tensor], _HEADROOM)
            return
        tried = _candidates(self._values[tensor])
        if found.has_softmax:
            high = tried[0][1]
            tried = [one for one in tried if one[1] == high]
        if len(tried) == 1:
            return
        self._candidates[tensor] = tried
        for reader in found.readers:
            self._trials.setdefault(reader.output, []).append(Trial(tensor, reader))

    def _compared(
        self, feeds: Sequence[Mapping[str, Array]], before: Mapping[Edge, NDArray[np.float64]]
    ) -> dict[Edge, NDArray[np.float64]]:
        """Return the error of each range, after more runs.

        Args:
            before: the errors before them; ranges with an infinite one are not tried.
        """
        errors = {tensor: np.zeros(len(tried)) for tensor, tried in self._candidates.items()}
        for trial, live in self._runs(feeds):
            remaining = np.isfinite(before[trial.tensor])
            if remaining.sum() > 1:
                for values in live:
                    self._compare(trial, values, remaining)
            errors[trial.tensor] += trial.shares()
        for error in errors.values():
            error[error > error.min() * _MUCH_WORSE] = np.inf
        return errors

    def _runs(
        self, feeds: Sequence[Mapping[str, Array]]
    ) -> Iterator[tuple[Trial, list[dict[Edge, Array]]]]:
        """Yield each trial with the values of the tensors that it needs, for each run.

        Tensors are computed in order, and their values are dropped after the last use.
        """
        live = [{edge(parse_ref(n)): array for n, array in run.items()} for run in feeds]
        sources = self._sources()
        places = {node.name: i for i, node in enumerate(execution_order(self._graph))}
        order = sorted(sources, key=lambda tensor: (places[tensor[0]], tensor[1]))
        last: dict[Edge, int] = {}
        for at, tensor in enumerate(order):
            fed = [trial.reader.fed for trial in self._trials.get(tensor, ())]
            last.update(dict.fromkeys(frozenset({tensor}).union(sources[tensor], *fed), at))
        for at, tensor in enumerate(order):
            if self._compute(tensor, sources[tensor], live):
                for trial in self._trials.get(tensor, ()):
                    yield trial, live
            for values in live:
                for old in [t for t in values if t not in self._inputs and last[t] <= at]:
                    del values[old]

    def _sources(self) -> dict[Edge, frozenset[Edge]]:
        """Return the tensors to compute, each with those from which it is computed."""
        sources: dict[Edge, frozenset[Edge]] = {}
        fed = [trial.reader.fed for trials in self._trials.values() for trial in trials]
        waiting = [*self._trials, *frozenset[Edge]().union(*fed)]
        while waiting:
            tensor = waiting.pop()
            if tensor not in sources and tensor not in self._inputs:
                sources[tensor] = self._search.sources(tensor)
                waiting += sources[tensor]
        return sources

    def _compute(
        self, tensor: Edge, sources: Iterable[Edge], live: Sequence[dict[Edge, Array]]
    ) -> bool:
        """Add the value of a tensor to each run; return False for an output of unsupported ops."""
        try:
            for values in live:
                values[tensor] = self._run(tensor, {source: values[source] for source in sources})
        except UnsupportedError:
            return False
        return True

    def _run(self, output: Edge, feeds: Mapping[Edge, Array]) -> Array:
        named = {str(Ref(*tensor)): array for tensor, array in feeds.items()}
        (result,) = self._interpreter.run([str(Ref(*output))], named)
        return result

    def _compare(
        self, trial: Trial, values: Mapping[Edge, Array], remaining: NDArray[np.bool_]
    ) -> None:
        """Add the errors of the remaining ranges in a run; those of others are infinite."""
        output, tried = trial.reader.output, self._candidates[trial.tensor]
        expected = values[output].astype(np.float64)
        feeds = {tensor: values[tensor] for tensor in trial.reader.fed}
        errors = np.full(len(tried), np.inf)
        for at in np.flatnonzero(remaining):
            feeds[trial.tensor] = _rounded(values[trial.tensor], tried[at])
            errors[at] = np.square(self._run(output, feeds) - expected).sum()
        trial.errors.append(errors)
        trial.powers.append(float(np.square(expected).sum()))


def _rounded(values: Array, span: Range) -> Array:
    """Round to the 256 levels of a range, extended to include zero, which is one of them."""
    low, high = min(span[0], 0.0), max(span[1], 0.0)
    step = np.float32((high - low) / _STEPS)
    if not step:
        return np.zeros_like(values)
    least = np.rint(low / float(step))
    levels = np.rint(values / step)
    np.clip(levels, np.float32(least), np.float32(least + _STEPS), out=levels)
    levels *= step
    return levels


# Ops whose results are elements of their inputs. In LiteRT, both have the same scale.
_MOVING: Final = IDENTITIES | {
    *("BatchToSpaceND", "Concat", "ConcatV2", "DepthToSpace", "ExpandDims", "Gather", "GatherNd"),
    *("GatherV2", "Max", "MaxPool", "Min", "MirrorPad", "Pack", "Pad", "PadV2", "Reshape"),
    *("ResizeNearestNeighbor", "ReverseV2", "Slice", "SpaceToBatchND", "SpaceToDepth", "Split"),
    *("SplitV", "Squeeze", "StridedSlice", "Tile", "Transpose", "Unpack"),
}
# Ops that read only the shape of a tensor.
_SIZES: Final = frozenset({"OnesLike", "Rank", "Shape", "ShapeN", "Size", "ZerosLike"})
_SOFTMAXES: Final = frozenset({"LogSoftmax", "Softmax"})
_MOST_READERS: Final = 8


class Reader(Struct, frozen=True):
    """An op that reads a tensor, with the ops after it.

    Args:
        output: its result: a tensor with a range, or an output of the graph.
        fed: the tensors from which the result is computed, with the inputs of the graph.
    """

    output: Edge
    fed: frozenset[Edge]


class Readers(Struct, frozen=True):
    """The ops that read a tensor.

    Args:
        readers: the nearest ones; none if the tensor is an output of the graph, or if its readers
            do not return floats.
        has_softmax: whether one of them is a softmax.
    """

    readers: tuple[Reader, ...] = ()
    has_softmax: bool = False


class ReaderSearch:
    """A search for the readers of tensors.

    A reader ends at the first tensor with a range of its own, except tensors with the same elements
    as the one that it reads: these are passed.

    Args:
        graph: the graph.
        tensors: the tensors with ranges.
        inputs: the inputs of the graph.
        outputs: the outputs of the graph.
    """

    def __init__(
        self,
        graph: Graph,
        tensors: Collection[Edge],
        inputs: Collection[Edge],
        outputs: Collection[Edge],
    ) -> None:
        self._graph = graph
        self._tensors = frozenset(tensors)
        self._inputs = frozenset(inputs)
        self._outputs = frozenset(outputs)
        functions = frozenset(node.name for node in graph if runs_functions(node, graph))
        self._excluded = conditional_nodes(graph) | functions

    def of(self, tensor: Edge) -> Readers | None:
        """Return the readers of a tensor, or None if it or they are in a branch or a loop."""
        if tensor[0] in self._excluded:
            return None
        outputs: list[Edge] = []
        ends = self._tensors | self._outputs
        same, seen = {tensor}, {tensor}
        waiting, has_softmax = [tensor], False
        while waiting:
            at = waiting.pop(0)
            if at in same & self._outputs:
                return Readers()
            for node, result in self._results(at):
                if node.name in self._excluded:
                    return None
                if result in seen:
                    continue
                if not self._is_float(result):
                    return Readers()
                seen.add(result)
                has_softmax |= node.op in _SOFTMAXES
                if at in same and node.op in _MOVING:
                    same.add(result)
                if result in same or result not in ends:
                    waiting.append(result)
                else:
                    outputs.append(result)
        nearest = outputs[:_MOST_READERS]
        readers = (Reader(one, self._fed(one, tensor, same)) for one in nearest)
        return Readers(tuple(readers), has_softmax)

    def sources(self, tensor: Edge) -> frozenset[Edge]:
        """Return the tensors with ranges from which a tensor is computed, and all inputs."""
        return self._before(tensor, (self._tensors | self._inputs) - {tensor})

    def _fed(self, output: Edge, tensor: Edge, same: Collection[Edge]) -> frozenset[Edge]:
        ends = (self._tensors | self._inputs) - {output, *same}
        return self._before(output, ends | {tensor})

    def _before(self, output: Edge, ends: frozenset[Edge]) -> frozenset[Edge]:
        def before(at: Edge) -> list[Edge]:
            if at in ends:
                return []
            return [edge(ref) for ref in self._graph[at[0]].data_inputs]

        return self._inputs | (closure([output], before) & ends)

    def _results(self, tensor: Edge) -> Iterator[tuple[Node, Edge]]:
        """Yield the nodes that read the values of a tensor, with each result that is used."""
        for node in self._graph.consumers.get(tensor[0], ()):
            if node.op in _SIZES or not any(edge(ref) == tensor for ref in node.data_inputs):
                continue
            readers = self._graph.consumers.get(node.name, ())
            used = {edge(ref) for reader in readers for ref in reader.data_inputs}
            for result in sorted(used | self._outputs):
                if result[0] == node.name:
                    yield node, result

    def _is_float(self, tensor: Edge) -> bool:
        return tensor_dtype(self._graph, Ref(*tensor)) in (DType.FLOAT, None)
