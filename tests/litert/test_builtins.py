"""The lowering of one op to each builtin, and its results in LiteRT.

Patterns of several ops are in ``test_patterns.py``, custom operators in ``ops/test_custom.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from tests.litert.one_op import check, integers, numbers

Case = Callable[[], list[str]]

_X: Final = numbers(2, 3, 4)
_Y: Final = numbers(2, 3, 4, seed=5)
_IMAGE: Final = numbers(2, 6, 8, 3)
_WHOLE: Final = integers(2, 3, 4)
_TRUE: Final = numbers(2, 3, 4) > 0
_CONV: Final[dict[str, Any]] = {"strides": [1, 1, 1, 1], "padding": "SAME"}
_POOL: Final[dict[str, Any]] = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
_BOXES: Final = np.float32([[0, 0, 1, 1], [0, 0, 1, 0.95], [2, 2, 3, 3]])
_SCORES: Final = np.float32([0.9, 0.8, 0.7])


def case(kind: str, *arrays: Any, **options: Any) -> Case:
    return lambda: check(kind, list(arrays), **options)


def one(kind: str, x: Any = _X) -> Case:
    return case(kind, x)


def two(kind: str, x: Any = _X, y: Any = _Y) -> Case:
    return case(kind, x, y)


def reduction(kind: str, x: Any = _X) -> Case:
    return case(kind, x, np.int32([1]), constant=[1], keep_dims=True)


def suppression(version: int, *more: float) -> Case:
    values = [
        _BOXES,
        _SCORES,
        np.int32(3),
        np.float32(0.5),
        np.float32(0.1),
        *map(np.float32, more),
    ]
    fixed = [2, 3, 4, *(5 for _ in more)]
    kind = f"NonMaxSuppressionV{version}"
    outputs = 2 if version == 4 else 3
    return case(kind, *values, constant=fixed, outputs=outputs, pad_to_max_output_size=True)


SEGMENTS: Final = np.int32([0, 1, 0])

CASES: Final[Mapping[str, Case]] = {
    "CONV_2D": case("Conv2D", _IMAGE, numbers(3, 3, 3, 5), constant=[1], **_CONV),
    "DEPTHWISE_CONV_2D": case(
        "DepthwiseConv2dNative", _IMAGE, numbers(3, 3, 3, 2), constant=[1], **_CONV
    ),
    "TRANSPOSE_CONV": case(
        "Conv2DBackpropInput",
        *(np.int32([2, 12, 16, 4]), numbers(3, 3, 4, 3), _IMAGE),
        constant=[0, 1],
        strides=[1, 2, 2, 1],
        padding="SAME",
    ),
    "CONV_3D": case(
        "Conv3D",
        *(numbers(1, 4, 5, 6, 2), numbers(2, 3, 2, 2, 4)),
        constant=[1],
        strides=[1, 1, 1, 1, 1],
        padding="SAME",
    ),
    "FULLY_CONNECTED": case("MatMul", numbers(3, 4), numbers(4, 5), constant=[1]),
    "BATCH_MATMUL": case("BatchMatMulV2", numbers(2, 3, 4), numbers(2, 4, 5)),
    "ADD": two("AddV2"),
    "SUB": two("Sub"),
    "MUL": two("Mul"),
    "DIV": two("RealDiv"),
    "FLOOR_DIV": two("FloorDiv", np.int32([7, -7]), np.int32([2, 2])),
    "FLOOR_MOD": case("FloorMod", _WHOLE, integers(2, 3, 4, low=1)),
    "ADD_N": case("AddN", _X, _X, _X, N=3),
    "SQUARED_DIFFERENCE": two("SquaredDifference"),
    "MINIMUM": two("Minimum"),
    "MAXIMUM": two("Maximum"),
    "POW": case("Pow", abs(_X), numbers(2, 3, 4, seed=5)),
    "EQUAL": two("Equal", _WHOLE, integers(2, 3, 4, low=-2, high=2)),
    "NOT_EQUAL": two("NotEqual", _WHOLE, integers(2, 3, 4, low=-2, high=2)),
    "LESS": two("Less"),
    "LESS_EQUAL": two("LessEqual"),
    "GREATER": two("Greater"),
    "GREATER_EQUAL": two("GreaterEqual"),
    "LOGICAL_AND": two("LogicalAnd", _TRUE, ~_TRUE),
    "LOGICAL_OR": two("LogicalOr", _TRUE, ~_TRUE),
    "LOGICAL_NOT": one("LogicalNot", _TRUE),
    "SELECT_V2": case("SelectV2", _TRUE, _X, np.float32(1.5), constant=[2]),
    "ABS": one("Abs"),
    "NEG": one("Neg"),
    "EXP": one("Exp"),
    "LOG": one("Log", abs(_X)),
    "SQRT": one("Sqrt", abs(_X)),
    "RSQRT": one("Rsqrt", abs(_X)),
    "SQUARE": one("Square"),
    "SIN": one("Sin"),
    "COS": one("Cos"),
    "FLOOR": one("Floor", _X * 3),
    "CEIL": one("Ceil", _X * 3),
    "ROUND": one("Round", _X * 3),
    "MAX_POOL_2D": case("MaxPool", _IMAGE, **_POOL),
    "AVERAGE_POOL_2D": case("AvgPool", _IMAGE, **_POOL),
    "MEAN": reduction("Mean"),
    "SUM": reduction("Sum"),
    "REDUCE_PROD": reduction("Prod"),
    "REDUCE_MAX": reduction("Max"),
    "REDUCE_MIN": reduction("Min"),
    "REDUCE_ANY": reduction("Any", _TRUE),
    "REDUCE_ALL": reduction("All", _TRUE),
    "ARG_MAX": case("ArgMax", _X, np.int32(1), constant=[1], output_type=DType.INT32),
    "ARG_MIN": case("ArgMin", _X, np.int32(1), constant=[1], output_type=DType.INT32),
    "TOPK_V2": case("TopKV2", _X, np.int32(2), constant=[1], outputs=2),
    "PAD": case("Pad", _X, np.int32([[0, 0], [1, 2], [0, 1]]), constant=[1]),
    "PADV2": case("PadV2", _X, np.int32([[0, 0], [1, 2], [0, 1]]), np.float32(7), constant=[1, 2]),
    "MIRROR_PAD": case(
        "MirrorPad", _X, np.int32([[0, 0], [1, 1], [0, 2]]), constant=[1], mode="REFLECT"
    ),
    "CONCATENATION": case("ConcatV2", _X, _X, np.int32(1), constant=[2], N=2),
    "SPLIT": case("Split", np.int32(2), _X, constant=[0], num_split=2, outputs=2),
    "SPLIT_V": case(
        "SplitV", _X, np.int32([1, 3]), np.int32(2), constant=[1, 2], num_split=2, outputs=2
    ),
    "PACK": case("Pack", _X, _X, N=2, axis=1),
    "UNPACK": case("Unpack", _X, num=3, axis=1, outputs=3),
    "SLICE": case("Slice", _X, np.int32([0, 1, 1]), np.int32([2, 2, 3]), constant=[1, 2]),
    "STRIDED_SLICE": case(
        "StridedSlice",
        *(_X, np.int32([0, 2, 0]), np.int32([2, 0, 4]), np.int32([1, -1, 2])),
        constant=[1, 2, 3],
    ),
    "GATHER": case("GatherV2", _X, np.int32([2, 0]), np.int32(1), constant=[1, 2]),
    "GATHER_ND": case("GatherNd", _X, np.int32([[0, 1], [1, 2]]), constant=[1]),
    "SCATTER_ND": case(
        "ScatterNd", np.int32([[1], [3]]), numbers(2, 4), np.int32([5, 4]), constant=[0, 2]
    ),
    "RESHAPE": case("Reshape", _X, np.int32([6, 4]), constant=[1]),
    "SQUEEZE": case("Squeeze", numbers(2, 1, 3, 1, 4), open_sizes=3, squeeze_dims=[1, 3]),
    "EXPAND_DIMS": case("ExpandDims", _X, np.int32(1), constant=[1], open_sizes=2),
    "TRANSPOSE": case("Transpose", _X, np.int32([2, 0, 1]), constant=[1]),
    "TILE": case("Tile", _X, np.int32([1, 2, 3]), constant=[1]),
    "BROADCAST_TO": case("BroadcastTo", numbers(3, 1), np.int32([2, 3, 4]), constant=[1]),
    "SHAPE": case("Shape", _X, open_sizes=True, out_type=DType.INT32),
    "FILL": case("Fill", np.int32([2, 3]), np.float32(4)),
    "RANGE": case("Range", np.int32(1), np.int32(9), np.int32(3)),
    "ONE_HOT": case(
        "OneHot",
        *(np.int32([0, 2, 1]), np.int32(4), np.float32(1), np.float32(0)),
        constant=[1, 2, 3],
    ),
    "CAST": case("Cast", _X * 5, SrcT=DType.FLOAT, DstT=DType.INT32),
    "RELU": one("Relu"),
    "RELU6": one("Relu6", _X * 4),
    "RELU_N1_TO_1": case("ClipByValue", _X * 2, np.float32(-1), np.float32(1), constant=[1, 2]),
    "LEAKY_RELU": case("LeakyRelu", _X, alpha=0.1),
    "ELU": one("Elu"),
    "LOGISTIC": one("Sigmoid"),
    "TANH": one("Tanh"),
    "SOFTMAX": one("Softmax"),
    "LOG_SOFTMAX": one("LogSoftmax"),
    "LOCAL_RESPONSE_NORMALIZATION": case("LRN", _IMAGE, depth_radius=1, bias=1.0),
    "RESIZE_BILINEAR": case("ResizeBilinear", _IMAGE, np.int32([9, 5]), constant=[1]),
    "RESIZE_NEAREST_NEIGHBOR": case(
        "ResizeNearestNeighbor", _IMAGE, np.int32([9, 5]), constant=[1]
    ),
    "SPACE_TO_DEPTH": case("SpaceToDepth", _IMAGE, block_size=2),
    "DEPTH_TO_SPACE": case("DepthToSpace", numbers(2, 3, 4, 8), block_size=2),
    "SPACE_TO_BATCH_ND": case(
        "SpaceToBatchND",
        *(_IMAGE, np.int32([2, 2]), np.int32([[0, 0], [0, 0]])),
        constant=[1, 2],
    ),
    "BATCH_TO_SPACE_ND": case(
        "BatchToSpaceND",
        *(numbers(4, 3, 4, 3), np.int32([2, 2]), np.int32([[0, 0], [0, 0]])),
        constant=[1, 2],
    ),
    "CUMSUM": case("Cumsum", _X, np.int32(1), constant=[1], exclusive=True),
    "REVERSE_V2": case("ReverseV2", _X, np.int32([1]), constant=[1]),
    "WHERE": one("Where", _TRUE),
    "NON_MAX_SUPPRESSION_V4": suppression(4),
    "NON_MAX_SUPPRESSION_V5": suppression(5, 0.0),
    "BITCAST": case("Bitcast", _X, T=DType.FLOAT, type=DType.INT32),
    "RIGHT_SHIFT": two("RightShift", _WHOLE, integers(2, 3, 4, low=0)),
    "BITWISE_XOR": two("BitwiseXor", _WHOLE, integers(2, 3, 4, low=0)),
    "BUCKETIZE": case("Bucketize", _X, boundaries=[-1.0, 0.0, 0.5]),
    "BROADCAST_ARGS": case("BroadcastArgs", np.int32([3, 1]), np.int32([2, 1, 4])),
    "MATRIX_DIAG": case("MatrixDiag", _X),
    "MATRIX_SET_DIAG": case("MatrixSetDiag", numbers(2, 3, 3), numbers(2, 3, seed=5)),
    "REVERSE_SEQUENCE": case("ReverseSequence", _X, np.int32([2, 3]), seq_dim=1, batch_dim=0),
    "SEGMENT_SUM": case("SegmentSum", numbers(3, 4), np.int32([0, 0, 1])),
    "UNSORTED_SEGMENT_SUM": case(
        "UnsortedSegmentSum", numbers(3, 4), SEGMENTS, np.int32(2), constant=[1, 2]
    ),
    "UNSORTED_SEGMENT_PROD": case(
        "UnsortedSegmentProd", numbers(3, 4), SEGMENTS, np.int32(2), constant=[1, 2]
    ),
    "UNSORTED_SEGMENT_MAX": case(
        "UnsortedSegmentMax", numbers(3, 4), SEGMENTS, np.int32(2), constant=[1, 2]
    ),
    "UNSORTED_SEGMENT_MIN": case(
        "UnsortedSegmentMin", numbers(3, 4), SEGMENTS, np.int32(2), constant=[1, 2]
    ),
    "UNIQUE": case("Unique", np.int32([3, 1, 3, 2]), outputs=2),
    "SIGN": one("Sign"),
    "ATAN2": two("Atan2"),
    "ZEROS_LIKE": case("ZerosLike", _X),
    "SELECT": case("Select", np.array([True, False]), _X, -_X),
}


@pytest.mark.parametrize("builtin", CASES)
def test_results_match_our_kernel(builtin: str) -> None:
    assert builtin in CASES[builtin]()
