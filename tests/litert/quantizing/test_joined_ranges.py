"""Tensors of small range that are joined with one of large range and have other consumers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.litert.convert import INTEGERS, Mode, converted
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.quantizing.kernels import Integers
from tests.litert.graphs import answered, codes, const, expected, feed, op
from tests.litert.integer_op import integer_model, ranges_of
from tests.litert.one_op import numbers

FEEDS = {"x": numbers(4, 6, seed=3)}
WEIGHTS = const("weights", numbers(6, 4, seed=4))
AXIS = const("axis", np.array(1, np.int32))
# Share of the peak of each output. With a joined scale the layer reads zeros: a difference of 1.
TOLERANCE = {"int8": 0.02, "int16x8": 0.01}


def sources() -> list[Node]:
    """Tensors whose ranges differ by a factor of 3,000."""
    scales = [const("hundredth", np.float32(0.01)), const("thirty", np.float32(30))]
    small, large = op("small", "Mul", ["x", "hundredth"]), op("large", "Mul", ["x", "thirty"])
    return [feed("x", (4, 6)), AXIS, WEIGHTS, *scales, small, large]


def layer(source: str) -> Node:
    return op("next", "MatMul", [source, "weights"])


FLAG = [
    const("zero", np.float32(0)),
    op("flag", "Greater", ["x", "zero"]),
]
CASES: dict[str, list[Node]] = {
    "concat": [op("y", "ConcatV2", ["small", "large", "axis"], N=2), layer("small")],
    "two joins": [
        const("tiny", numbers(4, 6, seed=9) * 0.01),
        op("z", "ConcatV2", ["small", "large", "axis"], N=2),
        op("next", "ConcatV2", ["small", "tiny", "axis"], N=2),
        op("y", "Abs", ["z"]),
    ],
    "two joins of three ranges": [
        const("tenth", np.float32(0.1)),
        op("fine", "Mul", ["small", "tenth"]),
        op("next", "Maximum", ["fine", "small"]),
        op("y", "ConcatV2", ["fine", "large", "axis"], N=2),
    ],
    "concat, large first": [op("y", "ConcatV2", ["large", "small", "axis"], N=2), layer("small")],
    "pack": [op("y", "Pack", ["small", "large"], N=2, axis=1), layer("small")],
    "maximum": [op("y", "Maximum", ["small", "large"]), layer("small")],
    "minimum": [op("y", "Minimum", ["large", "small"]), layer("small")],
    "select": [*FLAG, op("y", "Select", ["flag", "small", "large"]), layer("small")],
    "select of a constant": [
        *FLAG,
        const("far", np.full((4, 6), 100, np.float32)),
        op("y", "SelectV2", ["flag", "small", "far"]),
        layer("small"),
    ],
    "behind a move": [
        const("wide", np.array([2, 12], np.int32)),
        op("moved", "Reshape", ["small", "wide"]),
        op("far", "Reshape", ["large", "wide"]),
        op("y", "ConcatV2", ["moved", "far", "axis"], N=2),
        layer("small"),
    ],
    "before a move": [
        const("order", np.array([1, 0], np.int32)),
        op("turned", "Transpose", ["small", "order"]),
        op("back", "Transpose", ["turned", "order"]),
        op("y", "ConcatV2", ["small", "large", "axis"], N=2),
        layer("back"),
    ],
    "twice": [
        const("ten", np.float32(10)),
        op("medium", "Mul", ["small", "ten"]),
        op("first", "ConcatV2", ["small", "medium", "axis"], N=2),
        op("y", "ConcatV2", ["first", "large", "axis"], N=2),
        const("more_weights", numbers(12, 4, seed=5)),
        op("other", "MatMul", ["first", "more_weights"]),
        layer("small"),
    ],
}


@pytest.mark.parametrize("mode", ["int8", "int16x8"])
@pytest.mark.parametrize("name", CASES)
def test_other_consumers_keep_the_fine_scale(name: str, mode: Mode) -> None:
    graph = Graph([*sources(), *CASES[name]])
    outputs = ["y", "next"] + (["other"] if name == "twice" else [])
    record = integer_model(graph, FEEDS, outputs, mode=mode)
    results = answered(model_bytes(record), list(FEEDS.values()))
    for array, reference in zip(results, expected(graph, FEEDS, outputs), strict=True):
        limit = TOLERANCE[mode] * float(np.abs(reference).max())
        np.testing.assert_allclose(array, reference, rtol=0, atol=limit)


def test_fetched_tensor_keeps_its_scale() -> None:
    graph = Graph([*sources(), *CASES["concat"]])
    results = answered(model_bytes(integer_model(graph, FEEDS, ["y", "small"])), [FEEDS["x"]])
    reference = expected(graph, FEEDS, ["small"])[0]
    np.testing.assert_allclose(
        results[1], reference, rtol=0, atol=float(np.abs(reference).max()) / 100
    )


def test_tensors_without_other_consumers_are_joined() -> None:
    graph = Graph([*sources(), CASES["concat"][0]])
    assert codes(integer_model(graph, FEEDS, ["y"])).count("QUANTIZE") == 1  # the input's


def test_similar_ranges_are_joined() -> None:
    half = [const("half", np.float32(0.6)), op("other", "Mul", ["x", "half"])]
    both = [op("y", "ConcatV2", ["x", "other", "axis"], N=2), layer("other")]
    graph = Graph([feed("x", (4, 6)), AXIS, WEIGHTS, *half, *both])
    assert codes(integer_model(graph, FEEDS, ["y", "next"])).count("QUANTIZE") == 1


@pytest.mark.parametrize("mode", ["int8", "int16x8"])
def test_tensor_that_is_clipped_has_the_range_behind_the_clip(mode: Mode) -> None:
    """With the range of the sums, up to 300, half a step would be 0.6."""
    bounds = const("bounds", np.array([1, 2, 3, 1, 2, 3], np.float32))
    nodes = [
        const("wide", numbers(6, 6, seed=6) * 100),
        op("sums", "MatMul", ["x", "wide"]),
        op("above", "Relu", ["sums"]),
        op("y", "Minimum", ["above", "bounds"]),
    ]
    graph = Graph([feed("x", (4, 6)), bounds, *nodes])
    (result,) = answered(model_bytes(integer_model(graph, FEEDS, ["y"], mode=mode)), [FEEDS["x"]])
    (reference,) = expected(graph, FEEDS, ["y"])
    np.testing.assert_allclose(result, reference, rtol=0, atol=3 / 255)


def test_rescaled_tensors_are_reported() -> None:
    graph = Graph([*sources(), *CASES["concat"]])
    notes: list[str] = []
    settings = Integers(INTEGERS["int8"], ranges_of(graph, FEEDS))
    inputs: Any = [CutInput("x")]
    converted(graph, inputs, ["y", "next"], mode="int8", integers=settings, tell=notes.append)
    (note,) = [n for n in notes if "rescales" in n]
    assert note.startswith("CONCATENATION 'y' rescales 'small', which has a scale ")
    assert note.endswith(" times finer and other readers")


@pytest.mark.parametrize("mode", ["int8", "int16x8"])
@pytest.mark.parametrize("kind", ["Maximum", "PadV2"])
def test_constant_beyond_a_fixed_range_is_in_the_output(mode: Mode, kind: str) -> None:
    """The runtime fixes the range of a softmax to 0 to 1."""
    pads = [const("pads", np.array([[0, 0], [1, 2]], np.int32))] if kind == "PadV2" else []
    inputs = ["soft", *(n.name for n in pads), "far"]
    nodes = [feed("x", (4, 6)), op("soft", "Softmax", ["x"]), const("far", np.float32(3)), *pads]
    graph = Graph([*nodes, op("y", kind, inputs)])
    record = integer_model(graph, FEEDS, ["y"], mode=mode)
    (result,) = answered(model_bytes(record), [FEEDS["x"]])
    (reference,) = expected(graph, FEEDS, ["y"])
    np.testing.assert_allclose(result, reference, rtol=0, atol=0.02)
