"""The evaluate stage: runs a graph on labelled data and keeps its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mobileprep.errors import AccuracyError, UsageError
from mobileprep.formats.arrays import read_arrays, write_arrays
from mobileprep.fsio import atomic_writer
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.numerics.labels import (
    class_count,
    counts_fault,
    labels_fault,
    no_scores,
    range_fault,
)
from mobileprep.plan.records import EngineRecord, EvaluationRecord, Interface
from mobileprep.plan.running_stages import EvaluateStage
from mobileprep.runtime.engines.assets import with_found_assets
from mobileprep.runtime.engines.base import Engine
from mobileprep.runtime.feeds import converted, tensor_dtype
from mobileprep.runtime.sampling.inputs import known_shapes
from mobileprep.runtime.sampling.recorded import array_of
from mobileprep.stages.assets import asset_folder
from mobileprep.stages.base import Job, stage
from mobileprep.stages.running import compared_with_reference, stage_engine, storable

# Enough for BLAS to be busy, little enough for the activations to stay small.
_BATCH = 64
# Samples that a second engine runs too.
_COMPARED = 4


@stage(EvaluateStage)
def run(job: Job[EvaluateStage]) -> None:
    """Leaves ``outputs.npz`` and ``evaluation.json``.

    Raises:
        AccuracyError: the data does not fit together, the graph, or the metric.
    """
    asked = job.asked
    interface = job.record(Interface, asked.interface)
    arrays = read_arrays(asked.data.root)
    graph = job.graph(asked.graph)
    feeds = {name: _array(arrays, name, job) for name in interface.inputs}
    labels = _array(arrays, asked.labels, job)
    _check_data(feeds, labels, asked.labels, job)
    labels = labels.ravel()
    try:
        outputs, engine = _run(job, graph, feeds, interface.outputs)
    except UsageError as error:
        raise AccuracyError(error.message, error.hint, error.where) from error
    correct = _correct(outputs[0], labels, job)
    with atomic_writer(job.output(asked.OUTPUTS)) as stream:
        write_arrays(stream, {str(i): a for i, a in enumerate(outputs)})
    top1 = correct / len(labels)
    record = EvaluationRecord(interface.outputs, len(labels), correct, top1, engine)
    job.write_record(asked.RECORD, record)


def _run(
    job: Job[EvaluateStage], graph: Graph, feeds: Mapping[str, Array], fetches: Sequence[str]
) -> tuple[list[Array], EngineRecord]:
    """The outputs for all samples, and what computed them."""
    where = job.asked.data.name
    with asset_folder(job.path(job.asked.assets)) as folder:
        graph = with_found_assets(graph, (folder,))
        engine = stage_engine(job, graph, where)
        outputs = evaluate(engine, graph, feeds, fetches, where=where)
        few, samples = _few(graph, feeds)
        record = compared_with_reference(
            job, engine, graph, fetches, few, samples=samples, where=where
        )
    return outputs, record


def _few(graph: Graph, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
    """The first samples, as many as the graph insists on, and how many they are."""
    fixed = _fixed_batch(graph, feeds)
    given = {name: _converted(graph, name, array) for name, array in feeds.items()}
    size = fixed or _COMPARED
    batch = next(_batches(given, size, fill=bool(fixed)))
    return batch, min(size, *map(len, feeds.values()))


def evaluate(
    engine: Engine,
    graph: Graph,
    feeds: Mapping[str, Array],
    fetches: Sequence[str],
    *,
    where: str,
) -> list[Array]:
    """The fetched tensors for every sample, batch by batch, joined along the first axis.

    Tensors after the first that have no axis for the samples are stacked, one entry a batch.

    Args:
        engine: what runs the graph.
        graph: the graph.
        feeds: arrays whose first axis is the sample; numbers are converted to the type of the
            input where that keeps their kind.
        fetches: the tensors.
        where: what the data is called, for messages.

    Raises:
        AccuracyError: the first output has no axis for the samples, or another changes its
            shape from batch to batch.
        UsageError: the data does not fit the graph's inputs.
    """
    given = {name: _converted(graph, name, array) for name, array in feeds.items()}
    fixed = _fixed_batch(graph, feeds)
    size = fixed or _BATCH
    parts = [engine.run(fetches, batch) for batch in _batches(given, size, fill=bool(fixed))]
    count = len(next(iter(feeds.values())))
    sizes = [size if fixed else min(size, count - start) for start in range(0, count, size)]
    columns = [list(pieces) for pieces in zip(*parts, strict=True)]
    return [
        _joined(name, pieces, sizes, where, required=i == 0)[:count]
        for i, (name, pieces) in enumerate(zip(fetches, columns, strict=True))
    ]


def _joined(
    name: str, pieces: list[Array], sizes: Sequence[int], where: str, *, required: bool
) -> Array:
    """What each batch gave for an output, as one array of a type that files can hold."""
    if all(p.ndim and len(p) == n for p, n in zip(pieces, sizes, strict=True)):
        return storable(np.concatenate(pieces))
    if required:
        shape = list(pieces[0].shape)
        message = f"the output {name!r} has the shape {shape} for {sizes[0]} samples"
        raise AccuracyError(message, "name an output first that has an entry a sample", where)
    if len({p.shape for p in pieces}) > 1:
        message = f"the output {name!r} changes its shape from batch to batch"
        raise AccuracyError(message, "leave it out of the outputs", where)
    return storable(np.stack(pieces))


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
        raise AccuracyError(error.message, error.hint, job.place("validation")) from error


def _check_data(
    feeds: Mapping[str, Array], labels: Array, name: str, job: Job[EvaluateStage]
) -> None:
    """Whether arrays and labels belong together, and hold numbers."""
    place = job.place("validation")
    lengths = {name: len(a) if a.ndim else 0 for name, a in feeds.items()}
    count = labels.size
    fault = labels_fault(labels, name, max(lengths.values(), default=0))
    fault = fault or counts_fault(count, lengths)
    if fault is not None:
        raise AccuracyError(*fault, place)
    for array_name, array in feeds.items():
        lost = _all_nan(array)
        if len(lost):
            message = (
                f"{len(lost)} of {count} samples of {array_name!r} are NaN throughout, the first "
                f"of them sample {lost[0]}"
            )
            raise AccuracyError(message, "leave them out of the data", place)


def _all_nan(array: Array) -> Array:
    """The samples that have no number at all."""
    if array.dtype.kind not in "fc" or not array.size:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.isnan(array.reshape(len(array), -1)).all(axis=1))


def _correct(output: Array, labels: Array, job: Job[EvaluateStage]) -> int:
    """How many samples have their greatest score at their label.

    Raises:
        AccuracyError: the output is no score for each class, is NaN, or a label is no class.
    """
    classes = class_count(output.shape)
    if classes is None or output.dtype.kind not in "iuf":
        found = f"{output.dtype} of shape {list(output.shape)}"
        raise AccuracyError(*no_scores(found), job.place("outputs"))
    fault = range_fault(labels, job.asked.labels, classes)
    if fault is not None:
        raise AccuracyError(*fault, job.place("validation"))
    scores = output.reshape(len(output), -1)
    lost = np.flatnonzero(np.isnan(scores).any(axis=1))
    if len(lost):
        message = (
            f"{job.task}: the scores of {len(lost)} of {len(scores)} samples are NaN, the first of "
            f"them those of sample {lost[0]}; an accuracy of them would mean nothing"
        )
        hint = "look for NaN in the data, and for a transform that breaks the model (check: true)"
        raise AccuracyError(message, hint, job.place("validation"))
    return int(np.count_nonzero(scores.argmax(axis=1) == labels))
