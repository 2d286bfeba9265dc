"""Convert graphs, and compare LiteRT's interpreter with our own kernels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from tests.litert.graphs import answered, codes, const, expected, feed, model, numpy_type, op

# Sums in another order: a few units in the last place of float32, relative to the largest.
TOLERANCE = 2e-6


def check(
    kind: str,
    arrays: Sequence[Any],
    *,
    constant: Collection[int] = (),
    open_sizes: int = 0,
    outputs: int = 1,
    tolerance: float = TOLERANCE,
    **attrs: Any,
) -> list[str]:
    """Convert one node, compare all its outputs, and return the builtins in the file.

    Args:
        kind: the node's op.
        arrays: its inputs.
        constant: indices of constant inputs.
        open_sizes: number of leading dimensions of unknown size in each other input.
        outputs: number of outputs of the node.
        tolerance: the largest difference, relative to the largest value.
        attrs: its attributes.
    """
    open_axes = {i: range(open_sizes) for i in range(len(arrays))}
    graph, feeds = one_node(kind, arrays, constant, open_axes, **attrs)
    return codes(check_graph(graph, feeds, output_names(outputs), tolerance))


def one_node(
    kind: str,
    arrays: Sequence[Any],
    constant: Collection[int] = (),
    open_axes: Mapping[int, Collection[int]] | None = None,
    **attrs: Any,
) -> tuple[Graph, dict[str, Array]]:
    """Build a graph of one node ``y``; return it with the arrays of its placeholders.

    Args:
        kind: the node's op.
        arrays: its inputs; float64 becomes float32.
        constant: indices of constant inputs.
        open_axes: dimensions of unknown size, by index of input.
        attrs: its attributes.
    """
    names = [f"x{i}" for i in range(len(arrays))]
    nodes, feeds = [], dict[str, Array]()
    for i, (name, values) in enumerate(zip(names, arrays, strict=True)):
        array = np.asarray(values)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        if i in constant:
            nodes.append(const(name, array))
            continue
        axes = (open_axes or {}).get(i, ())
        shape = [-1 if axis in axes else size for axis, size in enumerate(array.shape)]
        nodes.append(feed(name, shape, numpy_type(array)))
        feeds[name] = array
    return Graph([*nodes, op("y", kind, names, **attrs)]), feeds


def output_names(count: int) -> list[str]:
    """Names of the outputs of the node ``y``."""
    return ["y", *(f"y:{i}" for i in range(1, count))]


def check_graph(
    graph: Graph,
    feeds: Mapping[str, Array],
    outputs: Sequence[str] = ("y",),
    tolerance: float = TOLERANCE,
    **options: Any,
) -> ModelRecord:
    """Convert a graph with ``options`` of ``model``, run it, and compare all outputs."""
    record = model(graph, list(feeds), outputs, **options)
    results = answered(model_bytes(record), list(feeds.values()))
    compare(results, expected(graph, feeds, outputs), tolerance)
    return record


def run_both(record: ModelRecord, graph: Graph, feeds: Mapping[str, Array]) -> tuple[Array, Array]:
    """Return output ``y`` of a file in LiteRT, and of its graph in our kernels."""
    (result,) = answered(model_bytes(record), list(feeds.values()))
    (reference,) = expected(graph, feeds, ["y"])
    return result, reference


def compare(results: Sequence[Any], references: Sequence[Array], tolerance: float) -> None:
    """Require equal shapes and types, and values within a tolerance."""
    for result, reference in zip(map(np.asarray, results), references, strict=True):
        assert (result.shape, result.dtype) == (reference.shape, reference.dtype)
        if result.dtype.kind == "f":
            peak = float(np.abs(reference[np.isfinite(reference)]).max(initial=0))
            np.testing.assert_allclose(result, reference, rtol=0, atol=tolerance * peak + 1e-30)
        else:
            np.testing.assert_array_equal(result, reference)


def numbers(*shape: int, seed: int = 3) -> Array:
    """Draw normally distributed float32 values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*shape: int, low: int = -9, high: int = 10, dtype: type = np.int32) -> Array:
    """Draw integers from ``low`` to below ``high``."""
    return np.random.default_rng(4).integers(low, high, shape).astype(dtype)
