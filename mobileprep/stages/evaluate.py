"""The evaluate stage: runs a graph on data, measures it, and keeps its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mobileprep.errors import AccuracyError, UsageError
from mobileprep.formats.arrays import read_arrays
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.numerics.labels import lengths_fault
from mobileprep.plan.records import EngineRecord, EvaluationRecord, Interface
from mobileprep.plan.running_stages import EvaluateStage
from mobileprep.runtime.engines.assets import with_found_assets
from mobileprep.runtime.engines.base import Engine
from mobileprep.runtime.feeds import converted, tensor_dtype
from mobileprep.runtime.sampling.inputs import known_shapes
from mobileprep.runtime.sampling.recorded import array_of
from mobileprep.stages.assets import asset_folder
from mobileprep.stages.base import Job, stage
from mobileprep.stages.measuring import Measures
from mobileprep.stages.outputs import kept_outputs
from mobileprep.stages.running import compared_with_reference, stage_engine, storable

# Enough for BLAS to be busy, little enough for the activations to stay small.
_BATCH = 64
# Samples that a second engine runs too.
_COMPARED = 4


@dataclass(frozen=True)
class BatchResult:
    """What a graph gave for some samples.

    Args:
        outputs: the fetched tensors, of types that files can hold; those with an entry for each
            sample have ``count`` of them.
        first: the number of the first sample.
        count: how many samples.
        batch: how many were fed, which is more where a graph insists on it.
    """

    outputs: list[Array]
    first: int
    count: int
    batch: int


@stage(EvaluateStage)
def run(job: Job[EvaluateStage]) -> None:
    """Leaves ``outputs.npz`` and ``evaluation.json``.

    Raises:
        AccuracyError: the data does not fit together, the graph, or a metric.
    """
    asked = job.asked
    interface = job.record(Interface, asked.interface)
    arrays = read_arrays(asked.data.root)
    graph = job.graph(asked.graph)
    feeds = {name: _array(arrays, name, job) for name in interface.inputs}
    samples = _checked(feeds, job)
    measures = Measures(job, interface, arrays, samples)
    try:
        batch, engine = _run(job, graph, feeds, interface.outputs, measures)
    except UsageError as error:
        raise AccuracyError(error.message, error.hint, error.where) from error
    values = measures.values()
    record = EvaluationRecord(
        interface.outputs, samples, batch, values, measures.warnings(), engine
    )
    job.write_record(asked.RECORD, record)


def _run(
    job: Job[EvaluateStage],
    graph: Graph,
    feeds: Mapping[str, Array],
    fetches: Sequence[str],
    measures: Measures,
) -> tuple[int, EngineRecord]:
    """Run all samples, measure and keep what comes; the size of a batch, and what ran it."""
    where = job.asked.data.name
    batch = 0
    with asset_folder(job.path(job.asked.assets)) as folder:
        graph = with_found_assets(graph, (folder,))
        engine = stage_engine(job, graph, where)
        with kept_outputs(job.output(job.asked.OUTPUTS)) as keep:
            for ran in evaluated(engine, graph, feeds, fetches):
                keep(ran.outputs)
                outputs = dict(zip(fetches, ran.outputs, strict=True))
                measures.update(outputs, ran.first, ran.count)
                batch = max(batch, ran.batch)
        few, samples = _few(graph, feeds)
        record = compared_with_reference(
            job, engine, graph, fetches, few, samples=samples, where=where
        )
    return batch, record


def _few(graph: Graph, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
    """The first samples, as many as the graph insists on, and how many they are."""
    fixed = _fixed_batch(graph, feeds)
    given = {name: _converted(graph, name, array) for name, array in feeds.items()}
    size = fixed or _COMPARED
    batch = next(_batches(given, size, fill=bool(fixed)))
    return batch, min(size, *map(len, feeds.values()))


def evaluated(
    engine: Engine, graph: Graph, feeds: Mapping[str, Array], fetches: Sequence[str]
) -> Iterator[BatchResult]:
    """What the graph gives for the samples, batch by batch.

    Args:
        engine: what runs the graph.
        graph: the graph.
        feeds: arrays whose first axis is the sample; numbers are converted to the type of the
            input where that keeps their kind.
        fetches: the tensors.

    Raises:
        UsageError: the data does not fit the graph's inputs.
    """
    given = {name: _converted(graph, name, array) for name, array in feeds.items()}
    fixed = _fixed_batch(graph, feeds)
    size = fixed or _BATCH
    samples = len(next(iter(feeds.values())))
    for number, batch in enumerate(_batches(given, size, fill=bool(fixed))):
        first = number * size
        fed, count = len(next(iter(batch.values()))), min(size, samples - first)
        outputs = [storable(array) for array in engine.run(fetches, batch)]
        cut = [a[:count] if a.ndim and len(a) == fed else a for a in outputs]
        yield BatchResult(cut, first, count, fed)


def _batches(feeds: Mapping[str, Array], size: int, *, fill: bool) -> Iterator[dict[str, Array]]:
    """The samples, ``size`` at a time.

    Args:
        feeds: arrays of equal length.
        size: of a batch.
        fill: repeat samples in the last batch, for a graph that takes no fewer; what they give
            is cut off again.
    """
    count = len(next(iter(feeds.values())))
    for start in range(0, count, size):
        if fill and start + size > count:
            chosen = np.arange(start, start + size) % count
            yield {name: array[chosen] for name, array in feeds.items()}
        else:
            yield {name: array[start : start + size] for name, array in feeds.items()}


def _fixed_batch(graph: Graph, feeds: Mapping[str, Array]) -> int:
    """The batch size that the inputs insist on, or 0 for any."""
    refs = [parse_ref(name) for name in feeds]
    for shape in known_shapes(graph, [ref for ref in refs if ref.node in graph]):
        if shape and shape[0] > 0:
            return shape[0]
    return 0


def _converted(graph: Graph, name: str, array: Array) -> Array:
    """An array in the type of its input, where that is only a matter of width."""
    ref = parse_ref(name)
    return converted(array, tensor_dtype(graph, ref) if ref.node in graph else None)


def _array(arrays: Mapping[str, Array], name: str, job: Job[EvaluateStage]) -> Array:
    try:
        return array_of(arrays, name, job.asked.data.name)
    except AccuracyError as error:
        raise error.at(job.place("validation")) from error


def _checked(feeds: Mapping[str, Array], job: Job[EvaluateStage]) -> int:
    """How many samples there are, once it is clear that inputs belong together, and hold numbers.

    Raises:
        AccuracyError: they do not.
    """
    place = job.place("validation")
    lengths = {name: len(a) if a.ndim else 0 for name, a in feeds.items()}
    fault = lengths_fault(lengths)
    if fault is not None:
        raise AccuracyError(*fault, place)
    count = max(lengths.values())
    for name, array in feeds.items():
        lost = _all_nan(array)
        if len(lost):
            message = (
                f"{len(lost)} of {count} samples of {name!r} are NaN throughout, the first "
                f"of them sample {lost[0]}"
            )
            raise AccuracyError(message, "leave them out of the data", place)
    return count


def _all_nan(array: Array) -> Array:
    """The samples that have no number at all."""
    if array.dtype.kind not in "fc" or not array.size:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.isnan(array.reshape(len(array), -1)).all(axis=1))
