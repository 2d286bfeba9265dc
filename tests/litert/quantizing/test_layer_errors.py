"""Errors of layers and their causes, by hand and against LiteRT."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Quantization
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array
from mobileprep.litert.assemble import assembled
from mobileprep.litert.convert import INTEGERS, Mode, Programs, programs, to_calibrate
from mobileprep.litert.emulation import dequantized_constant, emulation_of
from mobileprep.litert.layer_errors import ErrorSum, FileErrors, Shares, file_errors
from mobileprep.litert.prepare import CutInput
from mobileprep.litert.program import Value
from mobileprep.litert.quantizing.kernels import Integers, Range
from mobileprep.ops.numerics.differences import DamageSum
from mobileprep.runtime.interpreter import Interpreter
from tests.litert.graphs import const, feed, op

F = DType.FLOAT
# A step of [-1, 127/128] in int8, and of weights whose largest is 127/128.
U = 1 / 128
# The output of the first layer of ``two_layers``, in steps.
Y = 8.40625
STRIDES = {"strides": [1, 1, 1, 1], "padding": "SAME"}


def steps(scale: float) -> Range:
    """The range whose integers have a scale, with the zero point 0."""
    return -128 * scale, 127 * scale


def quantized(graph: Graph, mode: Mode, ranges: Mapping[str, Range] | None = None) -> Programs:
    kind = INTEGERS.get(mode)
    integers = None if kind is None else Integers(kind, ranges or {})
    return programs(graph, [CutInput("x")], ["y"], mode=mode, integers=integers)


def errors(
    graph: Graph,
    ranges: Mapping[str, Range],
    rows: Sequence[Sequence[float]],
    reference: Graph | None = None,
) -> FileErrors:
    """The errors of an int8 file on some rows, which are in steps of U."""
    emulation = emulation_of(quantized(graph, "int8", ranges))
    base = emulation
    if reference is not None:
        base = emulation_of(quantized(reference, "int8", ranges))
    feeds = [[np.array([row], np.float32) * np.float32(U)] for row in rows]
    return file_errors(emulation, base, feeds)


def product(name: str, lhs: str, rhs: str) -> Any:
    return op(name, "MatMul", [lhs, rhs], T=F, transpose_a=False, transpose_b=False)


def two_layers() -> Graph:
    """Two dense layers whose weights are 127, 126.375, and 127 steps."""
    return Graph(
        [
            feed("x", (1, 2)),
            const("w", [[127 * U], [126.375 * U]]),
            product("first", "x", "w"),
            const("v", [[127 * U]]),
            product("y", "first", "v"),
        ]
    )


TWO = {"x": steps(U), "first": steps(U * U), "y": steps(127 * U**3)}


def test_two_layers_by_hand() -> None:
    # x = (64, -64.25) is held as (64, -64), and the weights (127, 126.375) as (127, 126).
    # first = 64 * 127 - 64.25 * 126.375 = 8.40625; with those weights, 8128 - 64.25 * 126 = 32.5;
    # with that input, 8128 - 64 * 126.375 = 40; with both, 8128 - 64 * 126 = 64.
    found = errors(two_layers(), TWO, [(64, -64.25)])
    first, second = found.layers
    whole, weights, activations = (64 - Y) ** 2, (32.5 - Y) ** 2, (40 - Y) ** 2
    ratio = 10 * math.log10(Y**2 / whole)
    assert (first.layer, first.op) == ("first", "FULLY_CONNECTED")
    assert first.sqnr == pytest.approx(ratio, abs=1e-3)
    assert first.alone == pytest.approx(ratio, abs=1e-3)
    assert first.shares is not None
    assert first.shares.weights == pytest.approx((whole + weights - activations) / 2 / whole, 1e-4)
    assert first.shares.rounding == pytest.approx((whole + activations - weights) / 2 / whole, 1e-4)
    assert (first.shares.clipping, first.shares.rest) == (0, pytest.approx(0, abs=1e-6))
    # Alone, the second layer reads 8.40625 as 8, and multiplies exactly.
    assert second.sqnr == pytest.approx(ratio, abs=1e-3)
    assert second.alone == pytest.approx(10 * math.log10(Y**2 / 0.40625**2), abs=1e-3)
    assert second.shares is not None
    assert second.shares.rounding == pytest.approx(1, abs=1e-3)
    (output,) = found.outputs
    assert output.sqnr == second.sqnr
    assert output.shares is not None
    assert output.shares.weights == pytest.approx(first.shares.weights, 1e-3)


def test_clipped_input_by_hand() -> None:
    graph = Graph([feed("x", (1, 1)), const("w", [[127 * U]]), product("y", "x", "w")])
    (layer,) = errors(graph, {"x": steps(U), "y": steps(127 * U * U)}, [(200,)]).layers
    # The input 200 becomes 127.
    assert layer.alone == pytest.approx(10 * math.log10(200**2 / 73**2), abs=1e-3)
    assert layer.shares is not None
    assert layer.shares.clipping == pytest.approx(1, abs=1e-4)


def test_rounded_bias_is_the_rest() -> None:
    nodes = [
        feed("x", (1, 1)),
        const("w", [[127 * U]]),
        product("product", "x", "w"),
        const("bias", [0.4 * U * U]),
        op("y", "BiasAdd", ["product", "bias"], T=F),
    ]
    # 127 + 0.4 is held as 127.5; but the bias has the scale of the sums, and becomes 0.
    (layer,) = errors(Graph(nodes), {"x": steps(U), "y": steps(U * U / 2)}, [(0.0,)]).layers
    assert layer.shares is not None
    assert layer.alone == pytest.approx(0, abs=1e-3)
    assert layer.shares.rest == pytest.approx(1 - 0.1**2 / 0.4**2, abs=1e-3)
    assert layer.shares.rounding == pytest.approx(0.1**2 / 0.4**2, abs=1e-3)


def test_repaired_weights_are_compared_with_the_float_weights() -> None:
    # Rounded up, the second weight makes the first layer 8128 - 64 * 127 = 0 instead of 8.40625.
    repaired = Graph(
        [const("w", [[127 * U], [127 * U]]) if n.name == "w" else n for n in two_layers()]
    )
    first, _ = errors(repaired, TWO, [(64, -64.25)], two_layers()).layers
    assert first.sqnr == pytest.approx(0, abs=1e-3)
    assert first.alone == first.sqnr
    assert first.shares is not None
    # With float inputs: 8128 - 64.25 * 127 = -31.75.
    whole, weights, activations = Y**2, (Y + 31.75) ** 2, (40 - Y) ** 2
    assert first.shares.weights == pytest.approx((whole + weights - activations) / 2 / whole, 1e-3)


def test_blocks_of_weights_have_scales_of_their_own() -> None:
    scales = np.array([[1, 2], [3, 4]], np.float32)
    data = np.array([[1, -1, 1, -1], [2, 2, 2, 2]], np.int8)
    details = Quantization(scales, np.zeros(0, np.int64), 0)
    blocks = dequantized_constant(Value("w", DType.INT4, (2, 4), data, details))
    assert blocks.tolist() == [[1, -1, 2, -2], [6, 6, 8, 8]]
    details = Quantization(np.array([1, 2], np.float32), np.array([0, 1]), 0)
    channels = dequantized_constant(Value("w", DType.INT8, (2, 4), data, details))
    assert channels.tolist() == [[1, -1, 1, -1], [2, 2, 2, 2]]


def test_integer_output_is_rounded_like_its_tensor() -> None:
    graph, ranges = two_layers(), {**TWO, "y": steps(127 * U**3)}
    kind = Integers(DType.INT8, ranges, input_type="uint8", output_type="int8")
    done = programs(graph, [CutInput("x")], ["y"], mode="int8", integers=kind)
    emulation = emulation_of(done)
    found = file_errors(emulation, emulation, [[np.array([[64, -64.25]], np.float32) * U]])
    assert found == errors(graph, ranges, [(64, -64.25)])


def test_shares_add_up() -> None:
    total = ErrorSum()
    x = np.zeros(2, np.float32)
    arrays = {"all": 4, "both": 3, "weights": 2, "rounded": 1, "clipped": 0.5}
    total.add(x, {part: x + np.float32(error) for part, error in arrays.items()})  # type: ignore[misc]
    # Energies: 32, 18, 8, 2, 0.5; activations have (18 + 2 - 8) / 2 / 32 = 6 / 32.
    assert total.shares == Shares(12 / 32, 1.5 / 32, 4.5 / 32, 14 / 32)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_lost_numbers_have_no_shares(number: float) -> None:
    total = ErrorSum()
    total.add(np.zeros(1, np.float32), {"all": np.array([number], np.float32)})
    assert (total.sqnr, total.shares) == (-200, None)


def test_other_shapes_are_infinite_errors() -> None:
    total = ErrorSum()
    total.add(np.ones(2, np.float32), {"all": np.ones(3, np.float32)})
    assert (total.sqnr, total.shares) == (-200, None)


def test_exact_layers_have_no_shares() -> None:
    (layer, _) = errors(two_layers(), TWO, [(0, 0)]).layers
    assert (layer.sqnr, layer.alone, layer.shares) == (200, 200, None)


def network() -> Graph:
    """A convolution, a depthwise one, a sum, a 1 x 1 convolution, a pool, and a dense layer."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> Array:
        scale = math.prod(shape[:-1]) ** -0.5
        return rng.normal(scale=scale, size=shape).astype(np.float32)

    return Graph(
        [
            feed("x", (1, 16, 16, 3)),
            const("w1", weights(3, 3, 3, 48)),
            op("conv", "Conv2D", ["x", "w1"], T=F, **STRIDES),
            const("b1", rng.normal(size=48).astype(np.float32) / 4),
            op("biased", "BiasAdd", ["conv", "b1"], T=F),
            op("relu", "Relu6", ["biased"], T=F),
            const("w2", weights(5, 5, 48, 1) * 5),
            op("depthwise", "DepthwiseConv2dNative", ["relu", "w2"], T=F, **STRIDES),
            op("sum", "AddV2", ["depthwise", "relu"], T=F),
            const("half", np.float32(0.3)),
            op("scaled", "Mul", ["sum", "half"], T=F),
            const("w3", weights(1, 1, 48, 32)),
            op("pointwise", "Conv2D", ["scaled", "w3"], T=F, **STRIDES),
            op("active", "Relu", ["pointwise"], T=F),
            const("w4", weights(2, 2, 24, 32)),
            const("size", [1, 32, 32, 24]),
            op(
                *("wider", "Conv2DBackpropInput", ["size", "w4", "active"]),
                **{**STRIDES, "strides": [1, 2, 2, 1], "T": F},
            ),
            const("axes", [1, 2]),
            op("mean", "Mean", ["wider", "axes"], T=F, keep_dims=False, Tidx=DType.INT32),
            const("w5", weights(24, 64)),
            product("dense", "mean", "w5"),
            op("y", "Softmax", ["dense"], T=F),
        ]
    )


def ranges_on(graph: Graph, samples: Sequence[Array]) -> dict[str, Range]:
    prepared = to_calibrate(graph, [CutInput("x")], ["y"])
    names = [str(Ref(*tensor)) for tensor in prepared.tensors]
    running, ranges = Interpreter(prepared.graph), dict[str, Range]()
    for sample in samples:
        for name, array in zip(names, running.run(names, {"x": sample}), strict=True):
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = min(low, float(array.min())), max(high, float(array.max()))
    return ranges


@pytest.mark.parametrize("mode", ["int8", "int16x8", "weights", "int4"])
def test_every_layer_is_measured(mode: Mode) -> None:
    samples = [np.random.default_rng(i).normal(size=(1, 16, 16, 3)).astype("f") for i in range(2)]
    emulation = emulation_of(quantized(network(), mode, ranges_on(network(), samples)))
    found = file_errors(emulation, emulation, [[x] for x in samples])
    codes = ["CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED"]
    if mode in INTEGERS:
        codes = [*codes[:2], "ADD", "MUL", *codes[2:4], "MEAN", codes[4], "SOFTMAX"]
    assert [layer.op for layer in found.layers] == codes
    for layer in found.layers:
        assert layer.alone is not None
        assert layer.alone >= layer.sqnr - 3
        assert layer.shares is not None
        parts = (getattr(layer.shares, name) for name in layer.shares.__struct_fields__)
        assert sum(parts) == pytest.approx(1)
        has_weights = layer.op in ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV")
        assert (layer.shares.weights > 0.01) == has_weights or layer.op == "FULLY_CONNECTED"


@pytest.mark.reference
@pytest.mark.filterwarnings("ignore:.*experimental_preserve_all_tensors")
@pytest.mark.parametrize("mode", ["int8", "int16x8", "weights", "int4"])
def test_ratios_agree_with_litert(mode: Mode) -> None:
    module = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert is not installed"
    )
    samples = [np.random.default_rng(i).normal(size=(1, 16, 16, 3)).astype("f") for i in range(8)]
    done = quantized(network(), mode, ranges_on(network(), samples))
    emulation = emulation_of(done)
    found = file_errors(emulation, emulation, [[x] for x in samples])
    running = module.Interpreter(
        model_content=bytes(model_bytes(assembled(done.stored), "test")),
        experimental_preserve_all_tensors=True,
    )
    running.allocate_tensors()
    tensors = {detail["name"]: detail for detail in running.get_tensor_details()}
    outputs = [op.output for op in emulation.ops]
    floats, sums = Interpreter(emulation.graph), [DamageSum() for _ in outputs]
    for sample in samples:
        running.set_tensor(running.get_input_details()[0]["index"], sample)
        running.invoke()
        arrays = floats.run([str(Ref(*tensor)) for tensor in outputs], {"x": sample})
        for total, tensor, array in zip(sums, outputs, arrays, strict=True):
            name = tensor[0] if tensor[0] != "y" or mode not in INTEGERS else f"y_{_short(mode)}"
            detail = tensors[name]
            values = running.get_tensor(detail["index"])
            if values.dtype != np.float32:
                scale, zero = detail["quantization"]
                values = ((values.astype(np.float64) - zero) * scale).astype(np.float32)
            total.add(array, values)
    for layer, total in zip(found.layers, sums, strict=True):
        assert layer.sqnr == pytest.approx(total.damage().sqnr, abs=1), layer.layer


def _short(mode: Mode) -> str:
    return INTEGERS[mode].short
