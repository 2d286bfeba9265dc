"""One node, converted and run by LiteRT's interpreter, against our own kernel."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

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
    """Convert a graph of one node, run it, compare all outputs; the operators that ran.

    Args:
        kind: the node's op.
        arrays: its inputs.
        constant: which inputs are constants.
        open_sizes: how many of the first sizes of each other input are left open.
        outputs: how many outputs the node has.
        tolerance: the largest difference, relative to the largest number.
        attrs: its attributes.
    """
    given = [np.asarray(a, np.float32) if _is_float64(a) else np.asarray(a) for a in arrays]
    nodes, feeds = [], {}
    for index, array in enumerate(given):
        name = f"x{index}"
        if index in constant:
            nodes.append(const(name, array))
            continue
        left_open = min(open_sizes, array.ndim)
        shape = (*(-1,) * left_open, *array.shape[left_open:])
        nodes.append(feed(name, shape, numpy_type(array)))
        feeds[name] = array
    nodes.append(op("y", kind, [f"x{i}" for i in range(len(given))], **attrs))
    graph, wanted = Graph(nodes), ["y", *(f"y:{i}" for i in range(1, outputs))]
    record = model(graph, list(feeds), wanted)
    found = answered(model_bytes(record), list(feeds.values()))
    compare(found, expected(graph, feeds, wanted), tolerance)
    return codes(record)


def compare(found: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> None:
    """Equal shapes, types and numbers."""
    for got, told in zip(found, wanted, strict=True):
        assert (got.shape, got.dtype) == (told.shape, told.dtype)
        if got.dtype.kind == "f":
            peak = float(np.abs(told[np.isfinite(told)]).max(initial=0))
            np.testing.assert_allclose(got, told, rtol=0, atol=tolerance * peak + 1e-30)
        else:
            np.testing.assert_array_equal(got, told)


def _is_float64(values: Any) -> bool:
    return np.asarray(values).dtype == np.float64


def numbers(*shape: int, seed: int = 3) -> Array:
    """Normal numbers in float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*shape: int, low: int = -9, high: int = 10, dtype: type = np.int32) -> Array:
    """Whole numbers."""
    return np.random.default_rng(4).integers(low, high, shape).astype(dtype)
