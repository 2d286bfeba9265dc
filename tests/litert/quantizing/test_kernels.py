"""Every integer kernel in the interpreter, compared with our kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options
from mobileprep.formats.tflite.writer import model_bytes
from mobileprep.graph.graph import Graph, Versions
from mobileprep.graph.tensor import Array
from mobileprep.litert.assemble import assembled
from mobileprep.litert.convert import Mode
from mobileprep.litert.program import Op, Port, Program, Value
from mobileprep.litert.quantizing.kernels import KERNELS, EndType, Integers
from mobileprep.litert.quantizing.quantize import quantized
from mobileprep.litert.quantizing.sequences import SEQUENCE
from mobileprep.ops.math.arithmetic import erf
from tests.litert.graphs import answered, codes, const, feed, numpy_type, op
from tests.litert.integer_op import (
    as_floats,
    as_integers,
    check_integers,
    integer_model,
    opened,
)
from tests.litert.one_op import integers, numbers, run_both


@dataclass(frozen=True)
class Case:
    """A node that becomes one integer operator.

    Args:
        code: the builtin.
        op: the node's op.
        arrays: its inputs.
        constant: indices of constant inputs.
        attrs: its attributes.
        steps: the largest difference, in steps of the output.
        finer: the same for int16, whose kernels use lookup tables.
        outputs: number of its outputs.
    """

    code: str
    op: str
    arrays: tuple[Any, ...]
    constant: tuple[int, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)
    steps: float = 1.01
    finer: float = 0
    outputs: int = 1

    def __str__(self) -> str:
        return f"{self.code}-{'x'.join(map(str, np.shape(self.arrays[0])))}"


X = numbers(2, 6, 6, 4)
IMAGE = numbers(1, 9, 7, 4)
POSITIVE = np.abs(numbers(2, 5, 6)) + np.float32(0.1)
ROWS = numbers(3, 16)


def weights(*shape: int) -> Array:
    """Values that int8 represents exactly, with one scale per output channel."""
    values = integers(*shape, low=-127, high=128).astype(np.float32) / 256
    values.reshape(-1, shape[-1])[0] = 127 / 256
    return values * (np.arange(shape[-1], dtype=np.float32) + 1)


def depthwise(*shape: int) -> Array:
    """The same for [height, width, input, multiplier]."""
    return weights(*shape[:2], shape[2] * shape[3]).reshape(shape)


def case(code: str, op: str, *arrays: Any, **more: Any) -> Case:
    fields = {k: more.pop(k) for k in ("constant", "steps", "finer", "outputs") if k in more}
    return Case(code, op, arrays, attrs=more, **fields)


CASES = [
    *(
        case(
            "CONV_2D",
            "Conv2D",
            IMAGE,
            weights(*size, 4, 5),
            constant=(1,),
            strides=[1, *strides, 1],
            dilations=[1, *dilations, 1],
            padding=padding,
        )
        for size, strides, dilations, padding in [
            ((3, 3), (1, 1), (1, 1), "SAME"),
            ((3, 2), (2, 2), (1, 1), "VALID"),
            ((1, 1), (1, 1), (1, 1), "VALID"),
            ((3, 3), (1, 1), (2, 2), "SAME"),
        ]
    ),
    *(
        case(
            "DEPTHWISE_CONV_2D",
            "DepthwiseConv2dNative",
            IMAGE,
            depthwise(3, 3, 4, multiplier),
            constant=(1,),
            strides=[1, stride, stride, 1],
            padding=padding,
        )
        for multiplier, stride, padding in [(1, 1, "SAME"), (2, 2, "VALID")]
    ),
    case("FULLY_CONNECTED", "MatMul", ROWS, weights(16, 10), constant=(1,)),
    case(
        "FULLY_CONNECTED",
        "MatMul",
        numbers(1, 64),
        weights(64, 3).T,
        constant=(1,),
        transpose_b=True,
    ),
    case(
        "TRANSPOSE_CONV",
        "Conv2DBackpropInput",
        np.array([1, 12, 12, 3], np.int32),
        np.swapaxes(weights(3, 3, 4, 3), 2, 3),
        numbers(1, 6, 6, 4),
        constant=(0, 1),
        strides=[1, 2, 2, 1],
        padding="SAME",
    ),
    case("BATCH_MATMUL", "BatchMatMulV2", numbers(2, 3, 4), numbers(2, 4, 5, seed=7)),
    *(
        case(code, kind, X, other, constant=constant)
        for code, kind in [("ADD", "AddV2"), ("SUB", "Sub"), ("MUL", "Mul")]
        for other, constant in [
            (numbers(2, 6, 6, 4, seed=7), ()),
            (numbers(4, seed=7), (1,)),
            (numbers(1, 1, 6, 4, seed=8) * np.float32(9), ()),
        ]
    ),
    case("SQUARED_DIFFERENCE", "SquaredDifference", X, numbers(2, 6, 6, 4, seed=7)),
    *(
        case(code, kind, X, other, constant=constant)
        for code, kind in [("MINIMUM", "Minimum"), ("MAXIMUM", "Maximum")]
        for other, constant in [
            (numbers(2, 6, 6, 4, seed=7), ()),
            (np.float32(0.5), (1,)),
            (np.float32(1e30) if code == "MINIMUM" else np.float32(-1e30), (1,)),
        ]
    ),
    *(
        case(code, kind, X)
        for code, kind in [
            ("RELU", "Relu"),
            ("RELU6", "Relu6"),
            ("ABS", "Abs"),
            ("ELU", "Elu"),
            ("LOGISTIC", "Sigmoid"),
        ]
    ),
    case("EXP", "Exp", X),
    case("TANH", "Tanh", X, finer=2.01),
    case("LEAKY_RELU", "LeakyRelu", X, alpha=0.1),
    case("LOG", "Log", POSITIVE, steps=2.01),
    case("SQRT", "Sqrt", POSITIVE),
    case("RSQRT", "Rsqrt", POSITIVE, steps=2.01),
    case("SOFTMAX", "Softmax", ROWS, steps=1.01, finer=3.01),
    case("LOG_SOFTMAX", "LogSoftmax", ROWS, steps=2.01),
    *(
        case(
            code,
            kind,
            IMAGE,
            ksize=[1, *size, 1],
            strides=[1, *strides, 1],
            padding=padding,
        )
        for code, kind in [("MAX_POOL_2D", "MaxPool"), ("AVERAGE_POOL_2D", "AvgPool")]
        for size, strides, padding in [((2, 2), (2, 2), "VALID"), ((3, 2), (1, 2), "SAME")]
    ),
    *(
        case(code, kind, X, np.array(axes, np.int32), constant=(1,), keep_dims=keep, steps=1.6)
        for code, kind in [
            ("MEAN", "Mean"),
            ("SUM", "Sum"),
            ("REDUCE_MAX", "Max"),
            ("REDUCE_MIN", "Min"),
        ]
        for axes, keep in [([1, 2], True), ([3], False)]
    ),
    case(
        "REDUCE_PROD",
        "Prod",
        POSITIVE[:, :, :2],
        np.array([2], np.int32),
        constant=(1,),
        keep_dims=False,
        steps=2.01,
    ),
    *(
        case(code, kind, ROWS, np.array(1, np.int32), constant=(1,), output_type=DType.INT32)
        for code, kind in [("ARG_MAX", "ArgMax"), ("ARG_MIN", "ArgMin")]
    ),
    case(
        "TOPK_V2",
        "TopKV2",
        np.arange(40, dtype=np.float32)[::-1].reshape(2, 20) - 7,
        np.array(3, np.int32),
        constant=(1,),
        outputs=2,
    ),
    case("RESHAPE", "Reshape", X, np.array([2, 144], np.int32), constant=(1,)),
    case("TRANSPOSE", "Transpose", X, np.array([0, 3, 1, 2], np.int32), constant=(1,)),
    case("PAD", "Pad", X, np.array([[0, 0], [1, 2], [2, 0], [0, 0]], np.int32), constant=(1,)),
    case(
        "PADV2",
        "PadV2",
        X,
        np.array([[0, 0], [1, 2], [2, 0], [0, 0]], np.int32),
        np.float32(1.5),
        constant=(1, 2),
    ),
    case(
        "MIRROR_PAD",
        "MirrorPad",
        X,
        np.array([[0, 0], [1, 2], [2, 0], [0, 0]], np.int32),
        constant=(1,),
        mode="REFLECT",
    ),
    *(
        case("CONCATENATION", "ConcatV2", X, 3 * X, np.array(axis, np.int32), constant=(2,), N=2)
        for axis in (1, 3)
    ),
    case("CONCATENATION", "ConcatV2", X, 5 * X, np.array(3, np.int32), constant=(1, 2), N=2),
    case("PACK", "Pack", ROWS, 2 * ROWS, N=2, axis=1),
    case("UNPACK", "Unpack", numbers(3, 4), num=3, axis=0, outputs=3),
    case("SPLIT", "Split", np.array(3, np.int32), X, constant=(0,), num_split=2, outputs=2),
    case(
        "SPLIT_V",
        "SplitV",
        X,
        np.array([1, 3], np.int32),
        np.array(3, np.int32),
        constant=(1, 2),
        num_split=2,
        outputs=2,
    ),
    case(
        "SLICE",
        "Slice",
        X,
        np.array([0, 1, 2, 0], np.int32),
        np.array([2, 3, 2, 4], np.int32),
        constant=(1, 2),
    ),
    case(
        "STRIDED_SLICE",
        "StridedSlice",
        X,
        np.array([0, 1, 0, 0], np.int32),
        np.array([2, 5, 6, 4], np.int32),
        np.array([1, 2, 3, 1], np.int32),
        constant=(1, 2, 3),
    ),
    case(
        "GATHER", "GatherV2", ROWS, integers(5, low=0, high=3), np.array(0, np.int32), constant=(2,)
    ),
    case("GATHER_ND", "GatherNd", ROWS, integers(5, 2, low=0, high=3)),
    case("TILE", "Tile", ROWS, np.array([2, 1], np.int32), constant=(1,)),
    case("BROADCAST_TO", "BroadcastTo", ROWS, np.array([2, 3, 16], np.int32), constant=(1,)),
    case("REVERSE_V2", "ReverseV2", X, np.array([1], np.int32), constant=(1,)),
    case("SELECT_V2", "SelectV2", X > 0, X, 2 * X),
    case("SELECT", "Select", X > 0, X, 2 * X),
    case("SPACE_TO_DEPTH", "SpaceToDepth", X, block_size=2),
    case("DEPTH_TO_SPACE", "DepthToSpace", X, block_size=2),
    case(
        "SPACE_TO_BATCH_ND",
        "SpaceToBatchND",
        X,
        np.array([2, 2], np.int32),
        np.array([[0, 0], [1, 1]], np.int32),
        constant=(1, 2),
    ),
    case(
        "BATCH_TO_SPACE_ND",
        "BatchToSpaceND",
        numbers(4, 3, 3, 2),
        np.array([2, 2], np.int32),
        np.array([[0, 1], [0, 0]], np.int32),
        constant=(1, 2),
    ),
    *(
        case(code, kind, X, np.array([11, 13], np.int32), constant=(1,), **attrs)
        for code, kind in [
            ("RESIZE_BILINEAR", "ResizeBilinear"),
            ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighbor"),
        ]
        for attrs in [{}, {"half_pixel_centers": True}]
    ),
]


def _l2_normalized(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


SLOPES = np.array([0.25, -0.5, 0.125, 1], np.float32)
# Builtins without an op of their own: constants, options, and the function.
ALONE: dict[str, tuple[list[Array], Options | None, Callable[[Array], Array]]] = {
    "HARD_SWISH": ([], Options("HardSwishOptions"), lambda x: x * np.clip(x + 3, 0, 6) / 6),
    "L2_NORMALIZATION": ([], Options("L2NormOptions"), _l2_normalized),
    "PRELU": ([SLOPES.reshape(1, 1, 4)], None, lambda x: np.where(x > 0, x, x * SLOPES)),
    "RELU_N1_TO_1": ([], None, lambda x: np.clip(x, -1, 1)),
    "GELU": ([], Options("GeluOptions"), lambda x: x * (1 + erf(x / math.sqrt(2))) / 2),
    "SQUEEZE": ([], Options("SqueezeOptions", {"squeeze_dims": (0,)}), lambda x: x[0]),
    "EXPAND_DIMS": ([np.array(1, np.int32)], Options("ExpandDimsOptions"), lambda x: x[:, None]),
}


@pytest.mark.parametrize("code", ALONE)
@pytest.mark.parametrize("kind", [DType.INT8, DType.INT16])
def test_integer_operator_of_a_pattern(code: str, kind: DType) -> None:
    if kind not in KERNELS[code].types:
        pytest.skip(f"LiteRT has no kernel of {kind.short} for {code}")
    constants, options, function = ALONE[code]
    fed = numbers(1, 6, 6, 4)
    output = function(fed).astype(np.float32)
    x, y = Value("x", DType.FLOAT, fed.shape), Value("y", DType.FLOAT, output.shape)
    more = [Value(f"c{i}", numpy_type(c), c.shape, c) for i, c in enumerate(constants)]
    operation = Op(code, (x, *more), (y,), options)
    ranges = {
        "x": (float(fed.min()), float(fed.max())),
        "y": (float(output.min()), float(output.max())),
    }
    ends: EndType = "int8" if kind is DType.INT8 else "int16"
    settings = Integers(kind, ranges, input_type=ends, output_type=ends)
    program = Program((Port("x", x),), (Port("y", y),), (operation,))
    record = assembled(quantized(program, settings, {}).program)
    interpreter = opened(record)
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    stored = as_integers(source, fed)
    interpreter.set_tensor(source["index"], stored)
    interpreter.invoke()
    result = as_floats(target, interpreter.get_tensor(target["index"]))
    reference = function(as_floats(source, stored))
    np.testing.assert_allclose(result, reference, rtol=0, atol=1.51 * target["quantization"][0])
    assert codes(record) == [code]


@pytest.mark.parametrize("mode", ["int8", "int16x8"])
def test_integer_space_to_batch_of_rows(mode: Mode) -> None:
    arrays = [X, np.array([2], np.int32), np.array([[1, 1]], np.int32)]
    ran = check_integers("SpaceToBatchND", arrays, form=mode, constant=(1, 2))
    assert ran == ["RESHAPE", "SPACE_TO_BATCH_ND", "RESHAPE"]


@pytest.mark.parametrize("one", CASES, ids=str)
@pytest.mark.parametrize("mode", ["int8", "int16x8"])
def test_integer_operator(one: Case, mode: Mode) -> None:
    kind = {"int8": DType.INT8, "int16x8": DType.INT16}[mode]
    if kind not in KERNELS[one.code].types:
        pytest.skip(f"LiteRT has no kernel of {kind.short} for {one.code}")
    ran = check_integers(
        one.op,
        one.arrays,
        form=mode,
        constant=one.constant,
        outputs=one.outputs,
        steps=one.finer if one.finer and mode == "int16x8" else one.steps,
        **one.attrs,
    )
    assert ran == [one.code]


@pytest.mark.parametrize("kind", [DType.INT8, DType.INT16])
@pytest.mark.parametrize("clip", ["RELU6", "RELU_N1_TO_1"])
@pytest.mark.parametrize("code", ["FULLY_CONNECTED", "ADD", "itself"])
def test_tiny_ranges_can_be_clipped(code: str, clip: str, kind: DType) -> None:
    """LiteRT refuses a layer if its clipping bound exceeds 32 bits in output steps."""
    if code == "itself" and kind not in KERNELS[clip].types:
        pytest.skip(f"LiteRT has no kernel of {kind.short} for {clip}")
    x, y = Value("x", DType.FLOAT, (2, 4)), Value("y", DType.FLOAT, (2, 4))
    weights = Value("w", DType.FLOAT, (4, 4), np.full((4, 4), 1e-3, np.float32))
    bias = Value("b", DType.FLOAT, (4,), np.zeros(4, np.float32))
    active = {"fused_activation_function": clip}
    operation = {
        "FULLY_CONNECTED": Op(
            code, (x, weights, bias), (y,), Options("FullyConnectedOptions", active)
        ),
        "ADD": Op(code, (x, x), (y,), Options("AddOptions", active)),
        "itself": Op(clip, (x,), (y,)),
    }[code]
    near = (-1e-9, 2e-9)
    ends: EndType = "int8" if kind is DType.INT8 else "int16"
    settings = Integers(kind, {"x": near, "y": near}, input_type=ends, output_type=ends)
    program = Program((Port("x", x),), (Port("y", y),), (operation,))
    interpreter = opened(assembled(quantized(program, settings, {}).program))
    interpreter.invoke()
    assert interpreter.get_output_details()[0]["quantization"][0] >= 6 / 2**31


def test_every_operator_has_a_case() -> None:
    # test_sequences.py tests LSTM.
    assert {one.code for one in CASES} | set(ALONE) | {SEQUENCE} == set(KERNELS)


@pytest.mark.parametrize("kind", ["Add", "Mul"])
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_constant_of_one_element_and_more_dimensions(kind: str, shape: tuple[int, ...]) -> None:
    """XNNPACK would lose the dimensions of the constant."""
    far = const("far", np.full((1, 1, 1), 2, np.float32))
    nodes = [feed("x", shape), far, op("near", kind, ["x", "far"]), const("ten", np.float32(10))]
    graph = Graph([*nodes, op("y", "Mul", ["near", "ten"])], versions=Versions(1482))
    feeds = {"x": numbers(*shape)}
    result, reference = run_both(integer_model(graph, feeds, ["y"]), graph, feeds)
    assert result.shape == reference.shape
    limit = 0.02 * float(np.abs(reference).max())
    np.testing.assert_allclose(result, reference, rtol=0, atol=limit)


def test_zero_input_does_not_change_the_other_scale() -> None:
    graph = Graph([feed("x", (3,)), const("c", numbers(3) / 1000), op("y", "Sub", ["c", "x"])])
    feeds = {"x": np.zeros(3, np.float32)}
    (result,) = answered(model_bytes(integer_model(graph, feeds, ["y"])), [feeds["x"]])
    np.testing.assert_allclose(result, numbers(3) / 1000, rtol=0, atol=2e-5)


@pytest.mark.parametrize("mode", ["int8", "int16x8"])
def test_error_function_of_a_large_range_is_accurate(mode: Mode) -> None:
    """Its argument is clipped in float, where the bound is not rounded to the argument's scale."""
    x = np.float32([[-160, -17, -9, 0, 9, 17, 160]])
    nodes = [feed("x", x.shape), const("ten", np.float32(10)), op("z", "Mul", ["x", "ten"])]
    graph = Graph([*nodes, op("y", "Erf", ["z"], T=DType.FLOAT)])
    (result,) = answered(model_bytes(integer_model(graph, {"x": x}, ["y"], mode=mode)), [x])
    np.testing.assert_allclose(result, np.sign(x), rtol=0, atol=1e-6)
