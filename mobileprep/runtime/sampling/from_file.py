"""Samples for a graph's inputs from a file of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mobileprep.formats.arrays import read_arrays
from mobileprep.ir.graph import Graph
from mobileprep.ir.tensor import Array
from mobileprep.runtime.sampling.first_ops import first_ops
from mobileprep.runtime.sampling.inputs import fed_tensors
from mobileprep.runtime.sampling.recorded import recorded_feeds


def feeds_from_file(
    graph: Graph, inputs: Sequence[str], path: Path, count: int
) -> tuple[Mapping[str, Array], ...]:
    """What to feed, run by run.

    Args:
        graph: the graph.
        inputs: the names of the tensors to feed.
        path: an ``.npz`` file with an array for each input, or an ``.npy`` file for a single one.
        count: how many runs at most; of more samples, some spread evenly.

    Raises:
        CorruptFileError: the file is missing or damaged.
        AccuracyError: an array is missing or does not fit.
        InvalidGraphError, UsageError: an input is not in the graph, or of no known type.
    """
    arrays = read_arrays(path)
    if list(arrays) == [""] and len(inputs) == 1:
        arrays = {inputs[0]: arrays[""]}
    fed = fed_tensors(graph, inputs)
    ops = [first_ops(graph, f.ref) for f in fed]
    return recorded_feeds(arrays, fed, ops, count, str(path))
