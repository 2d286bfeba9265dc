"""Integer networks: the contents of the file, and its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.errors import TransformError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import LiteTensor, ModelRecord
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.tensor import Array
from mobileprep.litert.convert import INTEGERS, Mode, converted, to_calibrate
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.quantizing.kernels import Integers
from mobileprep.litert.weights import LAYER_AXES
from mobileprep.transforms.quantize_nodes import Rules
from tests.litert.graphs import answered, codes, const, expected, feed, op
from tests.litert.integer_op import compare_integers, integer_model, ranges_of
from tests.litert.one_op import numbers, run_both

STRIDES = {"strides": [1, 1, 1, 1]}
SIZES = (1, 8, 8, 3)


def network() -> Graph:
    """Convolutions, a sum of branches, a concatenation, pooling, a dense layer, softmax."""
    return Graph(
        [
            feed("x", SIZES),
            const("w1", numbers(3, 3, 3, 8, seed=5)),
            op("conv", "Conv2D", ["x", "w1"], padding="SAME", **STRIDES),
            const("b1", numbers(8, seed=6)),
            op("biased", "BiasAdd", ["conv", "b1"]),
            op("active", "Relu6", ["biased"]),
            const("w2", numbers(3, 3, 8, 1, seed=7)),
            op("deep", "DepthwiseConv2dNative", ["active", "w2"], padding="SAME", **STRIDES),
            op("sum", "AddV2", ["active", "deep"]),
            const("axis", np.array(3, np.int32)),
            op("both", "ConcatV2", ["sum", "deep", "axis"], N=2),
            op("pool", "MaxPool", ["both"], ksize=[1, 8, 8, 1], padding="VALID", **STRIDES),
            const("flat", np.array([1, 16], np.int32)),
            op("rows", "Reshape", ["pool", "flat"]),
            const("w3", numbers(16, 5, seed=8) / 4),
            op("logits", "MatMul", ["rows", "w3"]),
            op("y", "Softmax", ["logits"]),
        ]
    )


FEEDS = {"x": numbers(*SIZES, seed=9)}


def tensors(record: ModelRecord) -> Mapping[str, LiteTensor]:
    return {tensor.name: tensor for tensor in record.subgraphs[0].tensors}


def layer(record: ModelRecord, code: str) -> list[LiteTensor]:
    """Inputs of the first operator of a kind: activations, weights, bias."""
    graph = record.subgraphs[0]
    operator = next(o for o in graph.operators if o.code.builtin == code)
    return [graph.tensors[i] for i in operator.inputs]


def steps(record: ModelRecord, name: str) -> tuple[float, int]:
    details = tensors(record)[name].quantization
    assert details is not None
    return float(details.scales[0]), int(details.zero_points[0])


@pytest.mark.parametrize("mode", ["int8", "int16x8"])
def test_network_in_integers(mode: Mode) -> None:
    record = integer_model(network(), FEEDS, ["y"], mode=mode)
    assert codes(record) == [
        "QUANTIZE",
        *("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "CONCATENATION", "MAX_POOL_2D", "RESHAPE"),
        *("FULLY_CONNECTED", "SOFTMAX", "DEQUANTIZE"),
    ]
    result, reference = run_both(record, network(), FEEDS)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, reference, atol=0.02)


def test_equal_graphs_and_ranges_give_equal_bytes() -> None:
    first, second = (model_bytes(integer_model(network(), FEEDS, ["y"])) for _ in range(2))
    assert bytes(first) == bytes(second)


def test_scales_follow_the_specification() -> None:
    record = integer_model(network(), FEEDS, ["y"])
    assert steps(record, "y_int8") == (1 / 256, -128)
    # A sum, a branch, their concatenation, and moved tensors share their scale.
    assert len({steps(record, name) for name in ("sum", "deep", "both", "pool", "rows")}) == 1
    scale, zero = steps(record, "active")
    low, high = ranges_of(network(), FEEDS)["active"]
    assert (scale, zero) == (pytest.approx((high - low) / 255), -128)
    _, weights, bias = layer(record, "CONV_2D")
    assert weights.quantization is not None
    assert bias.quantization is not None
    assert (weights.type, bias.type) == ("INT8", "INT32")
    assert (weights.quantization.axis, weights.quantization.scales.size) == (0, 8)
    scales = weights.quantization.scales * steps(record, "x_int8")[0]
    np.testing.assert_allclose(bias.quantization.scales, scales, rtol=1e-6)
    details = layer(record, "DEPTHWISE_CONV_2D")[1].quantization
    assert details is not None
    assert details.axis == 3


def test_int16x8_bias_is_int64() -> None:
    record = integer_model(network(), FEEDS, ["y"], mode="int16x8")
    assert [t.type for t in layer(record, "CONV_2D")] == ["INT16", "INT8", "INT64"]
    assert steps(record, "active")[1] == 0


def test_fixed_scales_are_rescaled_before_a_concatenation() -> None:
    nodes = [
        feed("x", (1, 8)),
        op("small", "Sigmoid", ["x"]),
        const("w", numbers(8, 8)),
        op("large", "MatMul", ["x", "w"]),
        const("axis", np.array(1, np.int32)),
        op("y", "ConcatV2", ["small", "large", "axis"], N=2),
    ]
    feeds = {"x": numbers(1, 8)}
    record = integer_model(Graph(nodes), feeds, ["y"])
    assert codes(record).count("QUANTIZE") == 2
    assert steps(record, "small") == (1 / 256, -128)
    result, reference = run_both(record, Graph(nodes), feeds)
    np.testing.assert_allclose(result, reference, atol=2 * steps(record, "large")[0])


def mixed(rules: tuple[str, ...] = (), drop: str = "") -> tuple[ModelRecord, list[str]]:
    """Convert the network with rules or without a range; return it with the messages."""
    ranges = {k: v for k, v in ranges_of(network(), FEEDS).items() if k != drop}
    messages: list[str] = []
    settings = Integers(DType.INT8, ranges, rules=rules)
    record = converted(
        network(), [CutInput("x")], ["y"], mode="int8", integers=settings, tell=messages.append
    )
    return record, messages


def test_rule_keeps_layers_in_float() -> None:
    record, messages = mixed(("mode=float ops=DepthwiseConv2dNative",))
    assert layer(record, "DEPTHWISE_CONV_2D")[1].type == "FLOAT32"
    assert layer(record, "CONV_2D")[1].type == "INT8"
    assert codes(record).count("DEQUANTIZE") == 2
    assert messages == []
    result, reference = run_both(record, network(), FEEDS)
    np.testing.assert_allclose(result, reference, atol=0.02)


def test_rule_sets_weight_quantization() -> None:
    record, _ = mixed(("bits=4 granularity=tensor nodes=^conv$",))
    weights = layer(record, "CONV_2D")[1]
    assert weights.quantization is not None
    assert weights.quantization.scales.size == 1
    assert weights.type == "INT4"
    assert np.abs(unpacked(record, weights)).max() == 7


def unpacked(record: ModelRecord, tensor: LiteTensor) -> Array:
    """Return the elements of an INT4 constant with an even number of elements."""
    data = np.frombuffer(record.buffers[tensor.buffer], np.int8)
    return np.stack([(data << 4) >> 4, data >> 4], axis=-1).reshape(tensor.shape)


@pytest.mark.parametrize("mode", ["int8", "int16x8"])
@pytest.mark.parametrize("bits", [2, 3, 4])
def test_four_bit_weights_give_the_results_of_their_levels_in_eight(mode: Mode, bits: int) -> None:
    settings = Integers(INTEGERS[mode], ranges_of(network(), FEEDS), rules=(f"bits={bits}",))
    record = converted(network(), [CutInput("x")], ["y"], mode=mode, integers=settings)
    kinds = {code: layer(record, code)[1].type for code in LAYER_AXES if code in codes(record)}
    # The rule is about weights: operators without weights compute in integers, too.
    assert codes(record).count("DEQUANTIZE") == 1
    # XNNPACK runs no depthwise convolution with 4-bit weights, and LiteRT none with int16.
    assert kinds == {"CONV_2D": "INT4", "DEPTHWISE_CONV_2D": "INT8", "FULLY_CONNECTED": "INT4"}
    (graph,) = record.subgraphs
    wide, buffers = list(graph.tensors), list(record.buffers)
    for number, tensor in enumerate(graph.tensors):
        if tensor.type == "INT4":
            levels = unpacked(record, tensor)
            assert np.abs(levels).max() == (1 << (bits - 1)) - 1
            buffers.append(levels.tobytes())
            wide[number] = replace(tensor, type="INT8", buffer=len(buffers) - 1)
    other = replace(
        record, subgraphs=(replace(graph, tensors=tuple(wide)),), buffers=tuple(buffers)
    )
    (result,), (reference,) = (
        answered(model_bytes(each), [FEEDS["x"]]) for each in (record, other)
    )
    # Kernels may round a sum to another of two adjacent steps.
    np.testing.assert_allclose(result, reference, atol=1.01 / 256)


def test_rule_stores_a_float_layer_in_few_bits() -> None:
    wide = {**FEEDS, "x": numbers(1, 8, 8, 3)}
    nodes = [feed("x", SIZES), const("flat", np.array([1, 192], np.int32))]
    nodes += [op("rows", "Reshape", ["x", "flat"]), const("w", numbers(192, 12))]
    graph = Graph([*nodes, op("y", "MatMul", ["rows", "w"])])
    rules = ("mode=weights bits=4 block_size=64 nodes=^y$",)
    settings = Integers(DType.INT8, ranges_of(graph, wide), rules=rules)
    record = converted(graph, [CutInput("x")], ["y"], mode="int8", integers=settings)
    weights = layer(record, "FULLY_CONNECTED")[1]
    assert weights.quantization is not None
    assert (weights.type, weights.quantization.scales.shape) == ("INT4", (12, 3))
    result, reference = run_both(record, graph, wide)
    np.testing.assert_allclose(result, reference, atol=0.12 * np.abs(reference).max())


def test_dense_layers_with_one_scale_run_on_old_runtimes() -> None:
    def needed(*rules: str) -> str:
        return dict(mixed(rules)[0].metadata)["min_runtime_version"].rstrip(b"\0").decode()

    assert needed() == "2.17.0"
    assert needed("ops=MatMul granularity=tensor") == "1.14.0"


def test_operator_without_a_range_stays_float() -> None:
    record, messages = mixed(drop="logits")
    assert codes(record)[-3:] == ["DEQUANTIZE", "FULLY_CONNECTED", "SOFTMAX"]
    assert messages == [
        "FULLY_CONNECTED 'logits' in float: the range of 'logits' is not known",
        "SOFTMAX 'y' in float: the range of 'logits' is not known",
    ]


def test_operator_without_a_kernel_stays_float() -> None:
    nodes = [
        feed("x", (1, 8)),
        const("w", numbers(8, 8)),
        op("dense", "MatMul", ["x", "w"]),
        op("wave", "Sin", ["dense"]),
        const("shape", np.array([8, 1], np.int32)),
        # No rounding between two float operators.
        op("turned", "Reshape", ["wave", "shape"]),
        op("y", "Cos", ["turned"]),
    ]
    feeds = {"x": numbers(1, 8)}
    messages: list[str] = []
    settings = Integers(DType.INT8, ranges_of(Graph(nodes), feeds))
    specs = [CutInput("x")]
    record = converted(
        Graph(nodes), specs, ["y"], mode="int8", integers=settings, tell=messages.append
    )
    assert codes(record) == ["QUANTIZE", "FULLY_CONNECTED", "DEQUANTIZE", "SIN", "RESHAPE", "COS"]
    assert messages == [
        "SIN 'wave' in float: LiteRT has no kernel of int8 for it",
        "COS 'y' in float: LiteRT has no kernel of int8 for it",
    ]


@pytest.mark.parametrize("mode", ["int8", "int16x8"])
def test_shape_of_an_integer_tensor_stays_integer(mode: Mode) -> None:
    """Reading its shape does not make a tensor float, and prints no message."""
    nodes = [
        feed("x", (-1, 8)),
        const("w", numbers(8, 8)),
        op("dense", "MatMul", ["x", "w"]),
        op("y", "Relu", ["dense"]),
        op("sizes", "Shape", ["dense"]),
    ]
    graph, feeds = Graph(nodes), {"x": numbers(3, 8)}
    messages: list[str] = []
    settings = Integers(INTEGERS[mode], ranges_of(graph, feeds))
    record = converted(
        graph, [CutInput("x")], ["y", "sizes"], mode=mode, integers=settings, tell=messages.append
    )
    assert messages == []
    graphs = [record.subgraphs[0]]
    shapes = [o for g in graphs for o in g.operators if o.code.builtin == "SHAPE"]
    assert [graphs[0].tensors[o.inputs[0]].type for o in shapes] == [INTEGERS[mode].name]
    results = answered(model_bytes(record), list(feeds.values()))
    assert results[1].tolist() == [3, 8]


def test_large_float_layers_store_int8_weights() -> None:
    nodes = [
        feed("x", (1, 2, 8, 8, 4)),
        const("w", numbers(3, 3, 3, 4, 16)),
        op("y", "Conv3D", ["x", "w"], strides=[1, 1, 1, 1, 1], padding="SAME"),
    ]
    record = integer_model(Graph(nodes), {"x": numbers(1, 2, 8, 8, 4)}, ["y"])
    assert codes(record) == ["DEQUANTIZE", "CONV_3D"]


def fake_quant(name: str, source: str, low: float, high: float) -> Any:
    return op(name, "FakeQuantWithMinMaxArgs", [source], min=low, max=high)


def test_trained_ranges_come_from_fake_quantization() -> None:
    nodes = [
        feed("x", (1, 8)),
        fake_quant("xq", "x", -1.0, 1.55),
        const("w", numbers(8, 8)),
        op("dense", "MatMul", ["xq", "w"]),
        op("active", "Relu", ["dense"]),
        fake_quant("y", "active", 0.0, 5.1),
    ]
    feeds = {"x": np.clip(numbers(1, 8), -1, 1.5)}
    record = converted(Graph(nodes), [CutInput("x")], ["y"], mode="int8", integers=Integers())
    assert codes(record) == ["QUANTIZE", "FULLY_CONNECTED", "DEQUANTIZE"]
    assert steps(record, "x_int8") == (pytest.approx(0.01), -28)
    assert steps(record, "active_int8") == (pytest.approx(0.02), -128)
    result, reference = run_both(record, Graph(nodes), feeds)
    np.testing.assert_allclose(result, reference, atol=0.03)


@pytest.mark.parametrize(
    ("measured", "span"),
    [((-2.0, 3.1), 2.0), ((-0.5, 0.25), 0.75), ((-2.0, 0.5), 1.5), ((2.0, 3.0), 2.0)],
)
def test_observed_ranges_are_clipped_to_fake_quantization(
    measured: tuple[float, float], span: float
) -> None:
    nodes = [feed("x", (1, 8)), fake_quant("xq", "x", -1.0, 1.0), op("y", "Relu", ["xq"])]
    settings = Integers(DType.INT8, {"x": measured, "y": (0.0, 1.0)}, is_trained=False)
    record = converted(Graph(nodes), [CutInput("x")], ["y"], mode="int8", integers=settings)
    assert steps(record, "x_int8")[0] == pytest.approx(span / 255)
    if measured[1] > 1:
        feeds = {"x": np.linspace(-3, 3, 8, dtype=np.float32)[np.newaxis]}
        result, reference = run_both(record, Graph(nodes), feeds)
        np.testing.assert_allclose(result, reference, atol=0.03)


@pytest.mark.parametrize(
    ("mode", "ends", "kind"),
    [
        ("int8", "int8", "INT8"),
        ("int8", "uint8", "UINT8"),
        ("int16x8", "int16", "INT16"),
    ],
)
def test_inputs_and_outputs_are_integers(mode: Mode, ends: Any, kind: str) -> None:
    record = integer_model(network(), FEEDS, ["y"], mode=mode, ends=ends)
    graph = record.subgraphs[0]
    assert [graph.tensors[i].type for i in (*graph.inputs, *graph.outputs)] == [kind, kind]
    assert codes(record).count("DEQUANTIZE") == 0
    source, target = (graph.tensors[i].quantization for i in (*graph.inputs, *graph.outputs))
    assert source is not None
    assert target is not None
    limits = np.iinfo(kind.lower())
    stored = np.rint(FEEDS["x"] / source.scales[0]) + source.zero_points[0]
    fed: Array = np.clip(stored, limits.min, limits.max).astype(kind.lower())
    (result,) = answered(model_bytes(record), [fed])
    dequantized = (result.astype(np.float64) - target.zero_points[0]) * target.scales[0]
    np.testing.assert_allclose(dequantized, expected(network(), FEEDS, ["y"])[0], atol=0.02)


def test_input_type_that_differs_from_activations_is_refused() -> None:
    with pytest.raises(UsageError, match="inference_input_type is int16"):
        Integers(DType.INT8, input_type="int16")


def test_integer_input_without_a_range_is_refused() -> None:
    settings = Integers(DType.INT8, {"y": (0.0, 1.0)}, input_type="int8")
    with pytest.raises(UsageError, match="the range of the input 'x' is not known"):
        converted(network(), [CutInput("x")], ["y"], mode="int8", integers=settings)


def test_integers_without_any_range_are_refused() -> None:
    with pytest.raises(UsageError, match="int8 needs ranges of tensors"):
        converted(network(), [CutInput("x")], ["y"], mode="int8")


def test_invalid_rule_is_refused() -> None:
    with pytest.raises(TransformError, match="not understood"):
        mixed(("what=ever",))


def test_tensors_to_calibrate() -> None:
    calibration = to_calibrate(network(), [CutInput("x")], ["y"])
    names = [name for name, _ in calibration.tensors]
    assert names == ["x", "active", "deep", "sum", "both", "pool", "rows", "logits"]
    assert all(name in calibration.graph for name in names)


def test_channel_of_zeros_keeps_its_bias() -> None:
    weights = numbers(8, 4)
    weights[:, 2] = 0
    nodes = [
        feed("x", (1, 8)),
        const("w", weights),
        op("dense", "MatMul", ["x", "w"]),
        const("b", np.array([1, 2, 0.3333, 1e4], np.float32)),
        op("y", "BiasAdd", ["dense", "b"]),
    ]
    feeds = {"x": numbers(1, 8) * 100}
    ranges = ranges_of(Graph(nodes), feeds)
    ranges["y"] = (-0.2, 0.35)
    settings = Integers(INTEGERS["int8"], ranges)
    record = converted(Graph(nodes), [CutInput("x")], ["y"], mode="int8", integers=settings)
    (result,) = answered(model_bytes(record), list(feeds.values()))
    np.testing.assert_allclose(result[0, 2], 0.3333, atol=0.005)
    assert result[0, 3] == pytest.approx(0.35, abs=0.005)


@pytest.mark.parametrize(
    ("kind", "constant"),
    [("AddV2", False), ("Sub", True), ("SquaredDifference", False), ("MatMul", True)],
)
@pytest.mark.parametrize("mode", ["int8", "int16x8"])
def test_tiny_output_range_does_not_abort(kind: str, constant: bool, mode: Mode) -> None:
    other = const("b", numbers(8, 8)) if constant else feed("b", (8, 8))
    graph = Graph([feed("a", (8, 8)), other, op("y", kind, ["a", "b"])])
    names = ["a"] if constant else ["a", "b"]
    ranges = {"a": (-3.0, 3.0), "b": (-3.0, 3.0), "y": (-1e-9, 2e-9)}
    settings = Integers(INTEGERS[mode], ranges)
    record = converted(graph, [CutInput(n) for n in names], ["y"], mode=mode, integers=settings)
    (result,) = answered(model_bytes(record), [numbers(8, 8) for _ in names])
    assert np.abs(result).max() < 1


def test_transposed_tensors_keep_their_ranges() -> None:
    wide = {"strides": [1, 1, 1, 1], "padding": "SAME", "data_format": "NCHW"}
    nodes = [
        feed("x", (1, 3, 8, 8)),
        const("w", numbers(3, 3, 3, 4)),
        op("conv", "Conv2D", ["x", "w"], **wide),
        op("root", "Elu", ["conv"]),
        const("v", numbers(3, 3, 4, 2)),
        op("y", "Conv2D", ["root", "v"], **wide),
    ]
    feeds = {"x": numbers(1, 3, 8, 8)}
    assert [n for n, _ in to_calibrate(Graph(nodes), [CutInput("x")], ["y"]).tensors] == [
        *("x", "conv", "root", "y")
    ]
    record = integer_model(Graph(nodes), feeds, ["y"])
    assert {"CONV_2D", "ELU"} <= set(codes(record))
    assert codes(record).count("QUANTIZE") == codes(record).count("DEQUANTIZE") == 1


def attention(mask: str) -> Graph:
    """Masked scores, their softmax, and the weighted sum."""
    hidden = np.array([[False, True, True], [False, False, True], [False, False, False]])
    least = np.float32(-3e38 if mask == "least" else -1e9)
    masking = {
        "select": op("masked", "SelectV2", ["hidden", "far", "scores"]),
        "least": op("masked", "SelectV2", ["hidden", "far", "scores"]),
        "add": op("masked", "AddV2", ["scores", "added"]),
    }
    return Graph(
        [
            feed("x", (3, 4)),
            const("w", numbers(4, 3, seed=11)),
            op("scores", "MatMul", ["x", "w"]),
            const("hidden", hidden),
            const("far", least),
            const("added", np.where(hidden, least, np.float32(0))),
            masking[mask],
            const("shape", np.array([1, 3, 3], np.int32)),
            op("shaped", "Reshape", ["masked", "shape"]),
            op("shares", "Softmax", ["shaped"]),
            const("square", np.array([3, 3], np.int32)),
            op("rows", "Reshape", ["shares", "square"]),
            const("v", numbers(3, 5, seed=12)),
            op("y", "MatMul", ["rows", "v"]),
        ]
    )


def in_integers(graph: Graph, feeds: Mapping[str, Array], mode: Mode) -> tuple[ModelRecord, str]:
    """Convert a graph to integers with measured ranges; return it with the messages."""
    messages: list[str] = []
    ranges = ranges_of(graph, feeds)
    specs = [CutInput(name) for name in feeds]
    # As in a recipe: without the ranges of fixed scales.
    needed = {name: ranges[name] for name, _ in to_calibrate(graph, specs, ["y"]).tensors}
    settings = Integers(INTEGERS[mode], needed)
    record = converted(graph, specs, ["y"], mode=mode, integers=settings, tell=messages.append)
    return record, "\n".join(messages)


@pytest.mark.parametrize("mask", ["select", "add", "least"])
@pytest.mark.parametrize("mode", ["int8", "int16x8"])
def test_softmax_of_masked_scores_stays_float(mode: Mode, mask: str) -> None:
    graph, feeds = attention(mask), {"x": numbers(3, 4, seed=13)}
    record, messages = in_integers(graph, feeds, mode)
    assert "SOFTMAX 'shares' in float: one step of 'shaped' would be " in messages
    assert "FULLY_CONNECTED" not in messages
    assert codes(record).count("FULLY_CONNECTED") == 2
    assert layer(record, "FULLY_CONNECTED")[0].type == INTEGERS[mode].name
    result, reference = run_both(record, graph, feeds)
    far = 0.02 if mode == "int8" else 0.01
    assert np.abs(result - reference).max() < far * np.abs(reference).max()


def test_float_softmax_can_have_integer_output() -> None:
    settings = Integers(
        DType.INT8,
        {k: v for k, v in ranges_of(network(), FEEDS).items() if k != "y"},
        rules=("mode=float ops=Softmax",),
        output_type="int8",
    )
    record = converted(network(), [CutInput("x")], ["y"], mode="int8", integers=settings)
    graph = record.subgraphs[0]
    output = graph.tensors[graph.outputs[0]]
    assert output.type == "INT8"
    assert steps(record, output.name) == (1 / 256, -128)


def test_ends_of_float_operators_can_be_integers() -> None:
    graph = Graph(
        [
            feed("x", (20, 4)),
            op("less", "Neg", ["x"]),
            const("w", numbers(4, 3, seed=1)),
            op("product", "MatMul", ["less", "w"]),
            op("y", "Neg", ["product"]),
        ]
    )
    feeds = {"x": numbers(20, 4, seed=2)}
    ranges, specs = ranges_of(graph, feeds), [CutInput("x")]
    needed = {name: ranges[name] for name, _ in to_calibrate(graph, specs, ["y"]).tensors}
    settings = Integers(DType.INT8, needed, input_type="int8", output_type="int8")
    record = converted(graph, specs, ["y"], mode="int8", integers=settings)
    assert codes(record).count("NEG") == 2
    compare_integers(graph, feeds, ["y"], record, 2)


def test_softmax_without_a_mask_is_in_integers() -> None:
    _, messages = in_integers(network(), FEEDS, "int8")
    assert not messages


def types(record: ModelRecord, name: str) -> str:
    return tensors(record)[name].type


def with_rules(*rules: str, mode: Mode = "int8") -> ModelRecord:
    return integer_model(network(), FEEDS, ["y"], mode=mode, rules=rules)


def test_rules_choose_16_bit_activations() -> None:
    # The sum, what moves it, and the layer that reads it.
    record = with_rules("mode=int16x8 nodes=^(sum|logits)$")
    assert codes(record) == [
        *("QUANTIZE", "CONV_2D", "DEPTHWISE_CONV_2D", "QUANTIZE", "QUANTIZE", "ADD"),
        *("CONCATENATION", "MAX_POOL_2D", "RESHAPE", "FULLY_CONNECTED", "QUANTIZE", "SOFTMAX"),
        "DEQUANTIZE",
    ]
    kinds = [types(record, name) for name in ("active", "deep", "sum", "both", "rows", "logits")]
    assert kinds == ["INT8", "INT8", "INT16", "INT16", "INT16", "INT16"]
    assert [t.type for t in layer(record, "FULLY_CONNECTED")] == ["INT16", "INT8", "INT64"]
    assert [t.type for t in layer(record, "CONV_2D")] == ["INT8", "INT8", "INT32"]
    ranges = ranges_of(network(), FEEDS)
    most = max(abs(end) for name in ("sum", "deep") for end in ranges[name])
    # Exceptions cover four times the calibrated range.
    assert steps(record, "sum") == (pytest.approx(4 * most / 32767), 0)
    low, high = ranges["deep"]
    assert steps(record, "deep")[0] == pytest.approx((high - low) / 255)
    result, reference = run_both(record, network(), FEEDS)
    np.testing.assert_allclose(result, reference, atol=0.02)


def test_rules_choose_8_bit_activations_within_16() -> None:
    record = with_rules("mode=int8 ops=Conv2D,Softmax", mode="int16x8")
    assert codes(record) == [
        *("QUANTIZE", "CONV_2D", "QUANTIZE", "DEPTHWISE_CONV_2D", "ADD", "CONCATENATION"),
        *("MAX_POOL_2D", "RESHAPE", "FULLY_CONNECTED", "QUANTIZE", "SOFTMAX", "DEQUANTIZE"),
    ]
    assert [t.type for t in layer(record, "CONV_2D")] == ["INT8", "INT8", "INT32"]
    assert [t.type for t in layer(record, "DEPTHWISE_CONV_2D")] == ["INT16", "INT8", "INT64"]
    assert types(record, "y_int8") == "INT8"
    assert steps(record, "y_int8") == (1 / 256, -128)
    result, reference = run_both(record, network(), FEEDS)
    np.testing.assert_allclose(result, reference, atol=0.02)


def test_outputs_of_another_type_than_their_operator() -> None:
    # A calibration measures no fixed ranges.
    ranges = {k: v for k, v in ranges_of(network(), FEEDS).items() if k != "y"}
    rules = ("mode=int16x8 ops=Softmax",)
    settings = Integers(DType.INT8, ranges, rules=rules, input_type="int8", output_type="int8")
    record = converted(network(), [CutInput("x")], ["y"], mode="int8", integers=settings)
    assert codes(record)[-2:] == ["SOFTMAX", "QUANTIZE"]
    graph = record.subgraphs[0]
    output = graph.tensors[graph.outputs[0]]
    assert (output.type, graph.tensors[graph.inputs[0]].type) == ("INT8", "INT8")
    assert output.quantization is not None
    # The range of 8-bit softmax, not that of 16-bit softmax, which includes negative values.
    assert output.quantization.scales[0] == np.float32(1 / 256)
    assert output.quantization.zero_points[0] == -128


def test_operators_without_a_16_bit_kernel_stay_float() -> None:
    nodes = [
        feed("x", (1, 4, 4, 2)),
        const("w", numbers(1, 1, 2, 2, seed=3)),
        op("conv", "Conv2D", ["x", "w"], padding="SAME", **STRIDES),
        const("size", np.array([8, 8], np.int32)),
        op("large", "ResizeBilinear", ["conv", "size"]),
        op("y", "Sigmoid", ["large"]),
    ]
    feeds = {"x": numbers(1, 4, 4, 2, seed=4)}
    rules = ("mode=int16x8 nodes=.",)
    record = integer_model(Graph(nodes), feeds, ["y"], rules=rules)
    assert codes(record) == [
        *("QUANTIZE", "CONV_2D", "DEQUANTIZE", "RESIZE_BILINEAR", "QUANTIZE", "LOGISTIC"),
        "DEQUANTIZE",
    ]
    # Without a rule of its own, it computes in the mode of the program.
    record = integer_model(Graph(nodes), feeds, ["y"], rules=("mode=int16x8 ops=Conv2D,Sigmoid",))
    assert codes(record) == [
        *("QUANTIZE", "CONV_2D", "QUANTIZE", "RESIZE_BILINEAR", "QUANTIZE", "LOGISTIC"),
        "DEQUANTIZE",
    ]
    result, reference = run_both(record, Graph(nodes), feeds)
    np.testing.assert_allclose(result, reference, atol=0.02)


def test_16_bit_sums_keep_what_8_bit_sums_round() -> None:
    """A long sum of small terms: every 8-bit sum rounds, a 16-bit sum does not."""
    nodes = [feed("x", (1, 64))]
    last = "x"
    for step in range(8):
        nodes += [
            const(f"w{step}", np.eye(64, dtype=np.float32) * 0.01),
            op(f"m{step}", "MatMul", ["x", f"w{step}"]),
            op(f"s{step}", "AddV2", [last, f"m{step}"]),
        ]
        last = f"s{step}"
    nodes.append(op("y", "Relu", [last]))
    feeds = {"x": numbers(1, 64, seed=2)}
    graph = Graph(nodes)
    errors = []
    for rules in ((), ("mode=int16x8 ops=AddV2,Relu",)):
        record = integer_model(graph, feeds, ["y"], rules=rules)
        result, reference = run_both(record, graph, feeds)
        errors.append(float(np.abs(result - reference).mean()))
    assert errors[1] < errors[0] / 2


def test_16_bit_exceptions_keep_values_beyond_the_calibrated_range() -> None:
    nodes = [
        feed("x", (1, 4)),
        const("w", np.eye(4, dtype=np.float32)),
        op("y", "MatMul", ["x", "w"]),
    ]
    feeds = {"x": np.array([[-3, -1, 1, 3]], np.float32)}
    graph, largest = Graph(nodes), []
    for rules in ((), ("mode=int16x8 nodes=y",)):
        settings = Integers(DType.INT8, {"x": (-1, 1), "y": (-1, 1)}, rules=rules)
        record = converted(graph, [CutInput("x")], ["y"], mode="int8", integers=settings)
        (result,) = answered(model_bytes(record), list(feeds.values()))
        largest.append(float(result.max()))
    assert largest[0] == pytest.approx(1, abs=0.01)
    assert largest[1] == pytest.approx(3, abs=0.01)


def test_quantize_nodes_has_no_rules_for_litert() -> None:
    with pytest.raises(TransformError, match=r"gives mode the value 'int16x8'"):
        Rules("quantize_nodes", ["mode=int16x8 ops=Conv2D"])


def words() -> Graph:
    """Return the mean of looked up rows, and a dense layer."""
    kinds = {"Tindices": DType.INT32, "Taxis": DType.INT32}
    return Graph(
        [
            feed("i", (1, 6), DType.INT32),
            const("table", numbers(50, 32)),
            const("zero", 0),
            op("rows", "GatherV2", ["table", "i", "zero"], **kinds),
            const("one", [1]),
            op("mean", "Mean", ["rows", "one"], keep_dims=False),
            const("w", numbers(32, 40, seed=4)),
            op("y", "MatMul", ["mean", "w"]),
        ]
    )


@pytest.mark.parametrize(
    ("rules", "operators"),
    [
        ((), ["GATHER", "MEAN", "FULLY_CONNECTED", "DEQUANTIZE"]),
        (
            ("ops=GatherV2 bits=4",),
            [
                *("RESHAPE", "EMBEDDING_LOOKUP", "RESHAPE", "QUANTIZE", "MEAN"),
                *("FULLY_CONNECTED", "DEQUANTIZE"),
            ],
        ),
    ],
)
def test_rule_stores_a_table_in_few_bits(rules: tuple[str, ...], operators: list[str]) -> None:
    feeds = {"i": np.int32([[3, 1, 4, 1, 5, 49]])}
    settings = Integers(DType.INT8, ranges_of(words(), feeds), rules=rules)
    record = converted(words(), [CutInput("i")], ["y"], mode="int8", integers=settings)
    assert codes(record) == operators
    table = next(t for t in record.subgraphs[0].tensors if t.shape == (50, 32))
    assert table.type == ("INT4" if rules else "INT8")
    result, reference = run_both(record, words(), feeds)
    # Six rows with 4 bits, whose steps are a seventh of their largest number.
    limit = 0.15 if rules else 0.03
    assert np.abs(result - reference).max() < limit * np.abs(reference).max()
