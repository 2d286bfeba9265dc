"""The evaluate stage: runs a graph on labelled data and keeps its outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mobileprep.errors import AccuracyError, UsageError, nearest_hint
from mobileprep.formats.arrays import read_arrays, write_arrays
from mobileprep.fsio import atomic_writer
from mobileprep.ir.files import read_graph
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.ops.engines.assets import with_found_assets
from mobileprep.ops.engines.base import Engine
from mobileprep.ops.feeds import converted
from mobileprep.stages.assets import asset_folder
from mobileprep.stages.base import Job, stage
from mobileprep.stages.interface import read_interface
from mobileprep.stages.running import EngineRecord, compared_with_reference, stage_engine

# Enough for BLAS to be busy, little enough for the activations to stay small.
_BATCH = 64
# Samples that a second engine runs too.
_COMPARED = 4


@stage("evaluate")
def run(job: Job) -> None:
    """Leaves ``outputs.npz`` and ``evaluation.json``.

    Raises:
        AccuracyError: the data does not fit together, the graph, or the metric.
    """
    told = job.parameters
    interface = read_interface(job)
    arrays = read_arrays(job.files["data"][0].path)
    graph = read_graph(job.inputs["graph"])
    feeds = {name: _array(arrays, name, told["data"], job) for name in interface.inputs}
    labels = _array(arrays, told["labels"], told["data"], job).ravel()
    _check_labels(feeds, labels, told["labels"], job)
    try:
        outputs, engine = _run(job, graph, feeds, interface.outputs)
    except UsageError as error:
        raise AccuracyError(error.message, error.hint, error.where) from error
    correct = _correct(outputs[0], labels, job)
    with atomic_writer(job.output("outputs.npz")) as stream:
        write_arrays(stream, {str(i): a for i, a in enumerate(outputs)})
    evaluation = {
        "outputs": list(interface.outputs),
        "samples": len(labels),
        "correct": correct,
        "top1": correct / len(labels),
        "engine": engine.as_data(),
    }
    job.write_json("evaluation.json", evaluation)


def _run(
    job: Job, graph: Graph, feeds: Mapping[str, Array], fetches: Sequence[str]
) -> tuple[list[Array], EngineRecord]:
    """The outputs for all samples, and what computed them."""
    where = job.parameters["data"]
    with asset_folder(job) as folder:
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
        return _storable(np.concatenate(pieces))
    if required:
        shape = list(pieces[0].shape)
        message = f"the output {name!r} has the shape {shape} for {sizes[0]} samples"
        raise AccuracyError(message, "name an output first that has an entry a sample", where)
    if len({p.shape for p in pieces}) > 1:
        message = f"the output {name!r} changes its shape from batch to batch"
        raise AccuracyError(message, "leave it out of the outputs", where)
    return _storable(np.stack(pieces))


def _storable(array: Array) -> Array:
    """Numbers that numpy does not have itself as float32, text as bytes."""
    if array.dtype.kind == "O":
        return array.astype(np.bytes_)
    return array.astype(np.float32) if array.dtype.kind == "V" else array


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
    """The batch size that the placeholders insist on, or 0 for any."""
    for name in feeds:
        node = graph.get(parse_ref(name).node)
        shape = node.attr_shape("shape") if node is not None else None
        if shape and shape[0] > 0:
            return shape[0]
    return 0


def _converted(graph: Graph, name: str, array: Array) -> Array:
    """An array in the type of its placeholder, where that is only a matter of width."""
    node = graph.get(parse_ref(name).node)
    found = node.attrs.get("dtype") if node is not None else None
    return converted(array, found.value if found is not None and found.kind == "type" else None)


def _array(arrays: Mapping[str, Array], name: str, data: str, job: Job) -> Array:
    plain = parse_ref(name).node
    for key in (name, plain):
        if key in arrays:
            return arrays[key]
    message = f"{data} has no array {plain!r}; it has {', '.join(sorted(arrays)) or 'none'}"
    raise AccuracyError(message, nearest_hint(plain, arrays), job.place("validation"))


def _check_labels(feeds: Mapping[str, Array], labels: Array, name: str, job: Job) -> None:
    lengths = {name: len(a) if a.ndim else 0 for name, a in feeds.items()}
    if not feeds or not len(labels) or any(n != len(labels) for n in lengths.values()):
        told = ", ".join(f"{n} has {k}" for n, k in lengths.items()) or "no inputs are named"
        message = f"the data does not fit together: {len(labels)} labels, and {told}"
        raise AccuracyError(
            message, "every array needs one entry a sample", job.place("validation")
        )
    if labels.dtype.kind not in "iu":
        message = f"the labels {name!r} are {labels.dtype}, not the numbers of classes"
        raise AccuracyError(message, "save them as integers from 0 on", job.place("validation"))


def _correct(output: Array, labels: Array, job: Job) -> int:
    """How many samples have their greatest score at their label; NaN is no score."""
    scores = output.reshape(len(output), -1)
    if scores.shape[1] < 2 or scores.dtype.kind not in "iuf":
        found = f"{output.dtype} of shape {list(output.shape)}"
        message = f"top-1 needs a score for each class, and the first output is {found}"
        raise AccuracyError(message, "list the scores as the first output", job.place("outputs"))
    hits = scores.argmax(axis=1) == labels
    return int(np.count_nonzero(hits & ~np.isnan(scores).any(axis=1)))
