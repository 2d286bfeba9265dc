"""The evaluate stage: runs a graph on labelled data and keeps its outputs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mobileprep.errors import AccuracyError, nearest_hint
from mobileprep.formats.arrays import read_arrays, write_arrays
from mobileprep.ir.files import read_graph
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.tensor import Array
from mobileprep.ops.interpreter import Interpreter
from mobileprep.stages.base import Job, stage
from mobileprep.stages.interface import read_interface

# Enough for BLAS to be busy, little enough for the activations to stay small.
_BATCH = 64

# Two graphs at once would share the threads of BLAS, and sums would be split in other places:
# the last bits of the outputs must not depend on what else a build is doing.
_ALONE = threading.Lock()


@stage("evaluate")
def run(job: Job) -> None:
    """Leaves ``outputs.npz`` and ``evaluation.json``."""
    told = job.parameters
    interface = read_interface(job)
    data = job.files["data"][0]
    arrays = read_arrays(data.path)
    graph = read_graph(job.inputs["graph"])
    feeds = {name: _array(arrays, name, told["data"], job) for name in interface.inputs}
    labels = _array(arrays, told["labels"], told["data"], job).ravel()
    _check_lengths(feeds, labels, job)
    with _ALONE:
        outputs = evaluate(graph, feeds, interface.outputs, where=told["data"])
    correct = _correct(outputs[0], labels, job)
    write_arrays(job.output("outputs.npz"), {str(i): a for i, a in enumerate(outputs)})
    samples = len(labels)
    evaluation = {"samples": samples, "correct": correct, "top1": correct / samples}
    job.write_json("evaluation.json", evaluation)


def evaluate(
    graph: Graph, feeds: Mapping[str, Array], fetches: Sequence[str], *, where: str
) -> list[Array]:
    """The fetched tensors for every sample, batch by batch, joined along the first axis.

    Args:
        graph: the graph.
        feeds: arrays whose first axis is the sample.
        fetches: the tensors.
        where: what the data is called, for messages.

    Raises:
        AccuracyError: an output has no axis for the samples.
    """
    runner = Interpreter(graph, where=where)
    size = _fixed_batch(graph, feeds)
    parts = [runner.run(fetches, batch) for batch in _batches(feeds, size or _BATCH)]
    count = len(next(iter(feeds.values())))
    joined = []
    for name, pieces in zip(fetches, zip(*parts, strict=True), strict=True):
        if any(p.ndim == 0 for p in pieces):
            message = f"the output {name!r} is a scalar: it has no axis for the samples"
            raise AccuracyError(message, "name an output that has one", where)
        joined.append(np.concatenate(pieces)[:count])
    return joined


def _batches(feeds: Mapping[str, Array], size: int) -> Iterator[dict[str, Array]]:
    count = len(next(iter(feeds.values())))
    for start in range(0, count, size):
        batch = {name: array[start : start + size] for name, array in feeds.items()}
        missing = size - min(size, count - start)
        if missing and start:
            # A graph of a fixed batch takes no less: fill up, the surplus is cut off again.
            batch = {n: np.concatenate([a, feeds[n][:missing]]) for n, a in batch.items()}
        yield batch


def _fixed_batch(graph: Graph, feeds: Mapping[str, Array]) -> int:
    """The batch size that the placeholders insist on, or 0 for any."""
    for name in feeds:
        node = graph.get(parse_ref(name).node)
        shape = node.attr_shape("shape") if node is not None else None
        if shape and shape[0] > 0:
            return shape[0]
    return 0


def _array(arrays: Mapping[str, Array], name: str, data: str, job: Job) -> Array:
    plain = parse_ref(name).node
    for key in (name, plain):
        if key in arrays:
            return arrays[key]
    message = f"{data} has no array {plain!r}; it has {', '.join(sorted(arrays)) or 'none'}"
    raise AccuracyError(message, nearest_hint(plain, arrays), job.place("validation"))


def _check_lengths(feeds: Mapping[str, Array], labels: Array, job: Job) -> None:
    lengths = {name: len(a) if a.ndim else 0 for name, a in feeds.items()}
    if not feeds or not len(labels) or any(n != len(labels) for n in lengths.values()):
        told = ", ".join(f"{n} has {k}" for n, k in lengths.items()) or "no inputs are named"
        message = f"the data does not fit together: {len(labels)} labels, and {told}"
        raise AccuracyError(
            message, "every array needs one entry a sample", job.place("validation")
        )


def _correct(output: Array, labels: Array, job: Job) -> int:
    scores = output.reshape(len(output), -1)
    if scores.shape[1] < 2:
        message = f"top-1 needs a score for each class, and the output's shape is {output.shape}"
        raise AccuracyError(message, "list the scores as the first output", job.place("outputs"))
    return int(np.count_nonzero(scores.argmax(axis=1) == labels))
