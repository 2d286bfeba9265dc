"""8-bit graphs become float graphs, or int8 graphs with their recorded ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import FreshNames, Ref
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.transforms.base import Context, make_transform
from mobileprep.transforms.quantize_nodes.eightbit_ops import eightbit_nodes
from tests.litert.graphs import answered, codes, const, expected, feed, model, op
from tests.litert.one_op import integers, numbers, run_both

F, U8, I32 = DType.FLOAT, DType.QUINT8, DType.QINT32
IMAGE = (2, 8, 8, 3)
STRIDES = {"strides": [1, 1, 1, 1], "padding": "SAME"}
POOL = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}


def network() -> Graph:
    """Convolutions, pooling, a concatenation, a sum, a product, and a dense layer."""
    return Graph(
        [
            feed("x", IMAGE),
            const("w", numbers(3, 3, 3, 4, seed=1)),
            const("bias", numbers(4, seed=2)),
            const("v", numbers(1, 1, 4, 4, seed=3)),
            const("dense", numbers(128, 5, seed=4) / 8),
            const("shape", [-1, 128]),
            const("axis", 3),
            const("size", [4, 4]),
            op("conv", "Conv2D", ["x", "w"], T=F, **STRIDES),
            op("biased", "BiasAdd", ["conv", "bias"], T=F),
            op("relu", "Relu6", ["biased"], T=F),
            op("max", "MaxPool", ["relu"], T=F, **POOL),
            op("avg", "AvgPool", ["relu"], T=F, **POOL),
            op("next", "Conv2D", ["avg", "v"], T=F, **STRIDES),
            op("sum", "Add", ["next", "max"], T=F),
            op("product", "Mul", ["next", "max"], T=F),
            op("resized", "ResizeBilinear", ["product", "size"], T=F, align_corners=True),
            op("joined", "Concat", ["axis", "sum", "resized"], T=F, N=2),
            op("flat", "Reshape", ["joined", "shape"], T=F, Tshape=DType.INT32),
            op("y", "MatMul", ["flat", "dense"], T=F, transpose_a=False, transpose_b=False),
        ]
    )


def transformed(graph: Graph, *steps: tuple[str, dict[str, Any]]) -> Graph:
    for name, options in steps:
        graph = make_transform(name, options).apply(graph, Context(("x",), ("y",))).graph
    return graph


NODES: tuple[str, dict[str, Any]] = ("quantize_nodes", {})
WAYS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "nodes": [NODES],
    "weights and nodes": [("quantize_weights", {"minimum_size": 16}), NODES],
    "a fixed range": [("quantize_nodes", {"fallback_min": -12.0, "fallback_max": 12.0})],
    "layers": [("quantize_nodes", {"ranges": "dynamic"})],
    "one range for all channels": [
        ("quantize_nodes", {"ranges": "dynamic", "rule": ("granularity=tensor",)})
    ],
    "a later release": [("quantize_nodes", {"ranges": "dynamic", "tensorflow": "2.21"})],
}


@pytest.mark.parametrize("way", WAYS)
def test_quantized_network_computes_in_floats(way: str) -> None:
    graph, x = transformed(network(), *WAYS[way]), numbers(*IMAGE, seed=9)
    assert any(node.op == "QuantizedConv2D" for node in graph)
    record = model(graph, ["x"], ["y"])
    assert codes(record).count("CONV_2D") == 2
    result, reference = run_both(record, graph, {"x": x})
    # The graph rounds after each op.
    assert float(np.abs(result - reference).mean()) < 0.03 * float(np.ptp(reference))


def grid(*shape: int, seed: int = 3) -> Array:
    """Values that are exact in 8 bits over their own range."""
    levels = np.random.default_rng(seed).integers(0, 256, shape)
    levels.flat[:3] = 0, 255, 100
    return ((levels - 100) * 0.03125).astype(np.float32)


MATRIX = (2, 6)
ONE_OP: dict[str, tuple[tuple[int, ...], Array | None, dict[str, Any]]] = {
    "Conv2D": (IMAGE, grid(3, 3, 3, 4), {"strides": [1, 2, 2, 1], "padding": "SAME"}),
    "BiasAdd": (IMAGE, grid(3), {}),
    "Add": (MATRIX, grid(6), {}),
    "Mul": (MATRIX, grid(2, 6, seed=4), {}),
    "MatMul": (MATRIX, grid(5, 6), {"transpose_a": False, "transpose_b": True}),
    "AvgPool": (IMAGE, None, POOL),
    "MaxPool": (IMAGE, None, POOL),
    "Relu": (MATRIX, None, {}),
    "Relu6": (MATRIX, None, {}),
    "Reshape": (MATRIX, np.array([3, 4], np.int32), {"Tshape": DType.INT32}),
    "ResizeBilinear": (IMAGE, np.array([5, 9], np.int32), {"align_corners": True}),
    "Concat": (MATRIX, grid(2, 3), {"N": 2}),
}


def one_op(kind: str) -> Graph:
    shape, other, attrs = ONE_OP[kind]
    inputs = ["x"] if other is None else ["x", "w"]
    nodes = [feed("x", shape), *([] if other is None else [const("w", other)])]
    if kind == "Concat":
        inputs = ["axis", *inputs]
        nodes.append(const("axis", 1))
    node = op("y", kind, inputs, T=F, **attrs)
    return Graph([*nodes, *eightbit_nodes(node, FreshNames(["x", "w", "axis"]), None, ())])


@pytest.mark.parametrize("kind", ONE_OP)
def test_error_of_each_op_is_within_one_step(kind: str) -> None:
    graph = one_op(kind)
    assert any(node.op == f"Quantized{kind}" for node in graph)
    x = grid(*ONE_OP[kind][0])
    result, reference = run_both(model(graph, ["x"], ["y"]), graph, {"x": x})
    # The step of the results, or of the input for ops that keep its range.
    step = float(max(reference.max(), 0) - min(reference.min(), 0)) / 255
    if kind in ("AvgPool", "ResizeBilinear"):
        step = 0.03125
    assert float(np.abs(result - reference).max()) <= 1.1 * step


def test_int8_uses_constant_ranges_without_calibration() -> None:
    fixed = ("quantize_nodes", {"fallback_min": -12.0, "fallback_max": 12.0})
    ranges = [const("low", -3.0), const("high", 3.0)]
    nodes = [
        n.with_inputs((n.inputs[0], Ref("low"), Ref("high")))
        if n.op == "QuantizeV2" and n.inputs[0].node == "x"
        else n
        for n in transformed(network(), fixed)
    ]
    graph, x = Graph([*ranges, *nodes]), numbers(*IMAGE, seed=9)
    record = model(graph, ["x"], ["y"], mode="int8")
    assert codes(record)[0] == "QUANTIZE"
    assert codes(record)[-1] == "DEQUANTIZE"
    assert not {"QUANTIZE", "DEQUANTIZE"} & set(codes(record)[1:-1])
    result, reference = run_both(record, graph, {"x": x})
    assert float(np.abs(result - reference).mean()) < 0.05 * float(np.ptp(reference))


def test_8_bit_inputs_keep_their_range_in_int8() -> None:
    options = {"input_min": -3.0, "input_max": 3.0, "fallback_min": -12.0, "fallback_max": 12.0}
    graph = transformed(network(), ("quantize_nodes", options))
    record = model(graph, ["x"], ["y"], mode="int8")
    assert codes(record)[:4] == ["CAST", "SUB", "MUL", "QUANTIZE"]
    assert [codes(record).count(code) for code in ("QUANTIZE", "DEQUANTIZE")] == [1, 1]
    x = integers(*IMAGE, low=0, high=256, dtype=np.uint8)
    result, reference = run_both(record, graph, {"x": x})
    assert float(np.abs(result - reference).mean()) < 0.05 * float(np.ptp(reference))


def quantized(name: str, values: Array) -> list[Node]:
    """Build an 8-bit constant and its range."""
    low, high = float(values.min()), float(values.max())
    levels = np.rint((values - low) * 255 / (high - low)).astype(np.uint8)
    return [
        constant(name, Tensor.packed(levels, U8)),
        const(f"{name}/min", low),
        const(f"{name}/max", high),
    ]


def test_values_saturate_as_in_the_graph() -> None:
    nodes = [
        feed("x", (2, 3)),
        const("low", -1.0),
        const("high", 1.0),
        op("q", "QuantizeV2", ["x", "low", "high"], T=U8, mode="MIN_FIRST"),
        op("y", "Dequantize", ["q", "q:1", "q:2"], T=U8, mode="MIN_FIRST"),
    ]
    record = model(Graph(nodes), ["x"], ["y"])
    result, reference = run_both(record, Graph(nodes), {"x": 3 * numbers(2, 3)})
    np.testing.assert_allclose(result, reference, atol=1.01 * 2 / 255)


def test_computed_range_that_clips_values_is_kept() -> None:
    nodes = [
        feed("x", (2, 3)),
        const("axes", [0, 1]),
        const("limit", 0.5),
        op("low", "Min", ["x", "axes"], T=F, Tidx=DType.INT32, keep_dims=False),
        op("most", "Max", ["x", "axes"], T=F, Tidx=DType.INT32, keep_dims=False),
        op("high", "Minimum", ["most", "limit"], T=F),
        op("q", "QuantizeV2", ["x", "low", "high"], T=U8, mode="MIN_FIRST"),
        op("y", "Dequantize", ["q", "q:1", "q:2"], T=U8, mode="MIN_FIRST"),
    ]
    graph, x = Graph(nodes), 3 * numbers(2, 3)
    result, reference = run_both(model(graph, ["x"], ["y"]), graph, {"x": x})
    np.testing.assert_allclose(result, reference, atol=1.01 * float(0.5 - x.min()) / 255)


def test_8_bit_inputs_are_converted() -> None:
    nodes = [
        feed("x", (2, 3), U8),
        const("low", -1.0),
        const("high", 2.0),
        *quantized("w", numbers(3, 4)),
        op(
            "product",
            "QuantizedMatMul",
            ["x", "w", "low", "high", "w/min", "w/max"],
            T1=U8,
            T2=U8,
            Toutput=I32,
        ),
        op("y", "Dequantize", [f"product{e}" for e in ("", ":1", ":2")], T=I32, mode="MIN_FIRST"),
        op("z", "Dequantize", ["x", "low", "high"], T=U8, mode="MIN_FIRST"),
    ]
    graph, x = Graph(nodes), np.arange(6, dtype=np.uint8).reshape(2, 3) * 50
    results = answered(model_bytes(model(graph, ["x"], ["y", "z"])), [x])
    for result, reference in zip(results, expected(graph, {"x": x}, ["y", "z"]), strict=True):
        np.testing.assert_allclose(result, reference, atol=2e-5)


@pytest.mark.parametrize("name", ["quantize_weights", "round_weights"])
def test_weight_only_quantization(name: str) -> None:
    options = {"minimum_size": 16} if name == "quantize_weights" else {"num_steps": 64}
    graph, x = transformed(network(), (name, options)), numbers(*IMAGE, seed=9)
    record = model(graph, ["x"], ["y"])
    result, reference = run_both(record, graph, {"x": x})
    np.testing.assert_allclose(result, reference, atol=1e-4)


def test_integers_with_a_computed_range_are_refused() -> None:
    nodes = [
        feed("x", (2, 3), U8),
        feed("low", ()),
        feed("high", ()),
        op("r", "QuantizedRelu", ["x", "low", "high"], Tinput=U8, out_type=U8),
        op("y", "Dequantize", ["r", "r:1", "r:2"], T=U8, mode="MIN_FIRST"),
    ]
    with pytest.raises(UnsupportedError, match="QuantizedRelu 'r' takes integers whose range"):
        model(Graph(nodes), ["x", "low", "high"], ["y"])


@pytest.mark.parametrize("output", ["q", "q:1"])
def test_quantized_output_is_refused(output: str) -> None:
    nodes = [
        feed("x", (2, 3)),
        const("low", -1.0),
        const("high", 1.0),
        op("q", "QuantizeV2", ["x", "low", "high"], T=U8, mode="MIN_FIRST"),
    ]
    with pytest.raises(UnsupportedError, match=f"the output '{output}' is quantized"):
        model(Graph(nodes), ["x"], [output])


@pytest.mark.parametrize(("size", "stride"), [(9, 4), (10, 4), (12, 4), (7, 3)])
def test_strides_wider_than_the_window(size: int, stride: int) -> None:
    """The kernel skips pixels at both edges; Conv2D skips them at the far edge."""
    nodes = [
        feed("x", (1, size, size, 1)),
        *(const(n, v) for n, v in (("low", -3.0), ("high", 3.0))),
        *quantized("w", numbers(1, 1, 1, 2)),
        op("q", "QuantizeV2", ["x", "low", "high"], T=U8, mode="MIN_FIRST"),
        op(
            "conv",
            "QuantizedConv2D",
            ["q", "w", "q:1", "q:2", "w/min", "w/max"],
            Tinput=U8,
            Tfilter=U8,
            out_type=I32,
            strides=[1, stride, stride, 1],
            padding="SAME",
        ),
        op("y", "Dequantize", ["conv", "conv:1", "conv:2"], T=I32, mode="MIN_FIRST"),
    ]
    graph, x = Graph(nodes), numbers(1, size, size, 1)
    if size == 12:
        with pytest.raises(UnsupportedError, match="leaves out pixels at the edges"):
            model(graph, ["x"], ["y"])
        return
    result, reference = run_both(model(graph, ["x"], ["y"]), graph, {"x": x})
    np.testing.assert_allclose(result, reference, atol=0.1)
