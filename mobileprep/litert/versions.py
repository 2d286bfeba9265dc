"""Operator versions to write, and the runtime release that introduced each.

Source: LiteRT's ``op_version.cc`` and ``runtime_version.cc``, limited to operators that lowering
emits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.litert.program import Op, Value
from mobileprep.litert.ranks import MAX_RANKS, exceeds_rank

Rule = Callable[[Op], int]

_MEASURED: Final = "2.14.0"
"""The oldest release whose kernels were tested with more dimensions; see ``litert.ranks``."""

_MANY_DIMENSIONS: Final = "2.23.0"
"""The first release that slices any number of dimensions."""

_BLOCKS: Final = "2.21.0"
"""The first release that runs blocks, also with XNNPACK; others compute zeros or wrong numbers."""

_MAX_OLD_RANK: Final = 4

# For each operator, the TensorFlow Lite releases that introduced version 1, 2, and so on.
_RELEASES: Final[Mapping[str, str]] = {
    "ABS": "1.13.0 2.4.0 2.5.0 2.6.0 2.12.0",
    "ADD": "1.5.0 1.14.0 2.4.0 2.6.0 2.13.0 2.23.0",
    "ADD_N": "1.14.0",
    "ARG_MAX": "1.9.0 1.14.0 2.9.0",
    "ARG_MIN": "1.9.0 1.14.0 2.9.0",
    "ATAN2": "2.10.0",
    "AVERAGE_POOL_2D": "1.5.0 1.14.0 2.3.0",
    "BATCH_MATMUL": "2.3.0 2.3.0 2.4.0 2.5.0",
    "BATCH_TO_SPACE_ND": "1.6.0 1.14.0 2.3.0 2.12.0",
    "BITCAST": "2.14.0",
    "BITWISE_XOR": "2.14.0",
    "BROADCAST_ARGS": "2.6.0",
    "BROADCAST_TO": "2.5.0 2.5.0 2.5.0",
    "BUCKETIZE": "2.8.0",
    "CALL_ONCE": "2.5.0",
    "CAST": "1.5.0 2.7.0 2.8.0 2.9.0 2.12.0 2.15.0 2.17.0 2.21.0",
    "CEIL": "1.14.0",
    "CONCATENATION": "1.5.0 1.14.0 2.3.0 2.14.0 2.21.0",
    "CONV_2D": "1.5.0 1.14.0 1.14.0 2.3.0 2.4.0 2.9.0 2.11.0 2.15.0",
    "CONV_3D": "2.5.0",
    "CONV_3D_TRANSPOSE": "2.6.0",
    "COS": "1.14.0",
    "CUMSUM": "2.4.0",
    "DEPTHWISE_CONV_2D": "1.5.0 1.12.0 1.14.0 2.2.0 2.3.0 2.3.0 2.11.0",
    "DEPTH_TO_SPACE": "2.1.0 2.5.0",
    "DEQUANTIZE": "1.13.1 1.14.0 1.15.0 2.2.0 2.7.0 2.18.0 2.21.0 2.22.0",
    "DIV": "1.6.0 2.3.0",
    "DYNAMIC_UPDATE_SLICE": "2.9.0",
    "ELU": "1.14.0",
    "EMBEDDING_LOOKUP": "1.13.0 1.14.0 1.14.0 2.18.0",
    "EQUAL": "1.14.0 1.14.0 2.3.0 2.13.0 2.21.0",
    "EXP": "1.7.0 2.12.0",
    "EXPAND_DIMS": "1.10.0",
    "FAKE_QUANT": "1.5.0 1.10.0",
    "FILL": "1.13.0 2.3.0 2.5.0 2.12.0",
    "FLOOR": "1.9.0",
    "FLOOR_DIV": "1.14.0 1.14.0 2.13.0",
    "FLOOR_MOD": "1.13.0 2.13.0",
    "FULLY_CONNECTED": (
        "1.5.0 1.10.0 1.14.0 1.14.0 2.0.0 2.1.0 2.3.0 2.3.0 2.3.0 2.11.0 2.15.0 2.17.0 2.18.0"
    ),
    "GATHER": "1.6.0 1.14.0 1.15.0 2.4.0 2.5.0 2.13.0 2.15.0",
    "GATHER_ND": "1.14.0 2.3.0 2.5.0 2.13.0 2.16.0",
    "GELU": "2.9.0 2.9.0",
    "GREATER": "1.14.0 1.14.0",
    "GREATER_EQUAL": "1.14.0 1.14.0 2.13.0",
    "HARD_SWISH": "1.15.0",
    "HASHTABLE": "2.5.0",
    "HASHTABLE_FIND": "2.5.0",
    "HASHTABLE_IMPORT": "2.5.0",
    "HASHTABLE_SIZE": "2.5.0",
    "IF": "1.15.0",
    "L2_NORMALIZATION": "1.5.0 1.14.0",
    "LEAKY_RELU": "1.13.1 2.3.0",
    "LESS": "1.14.0 1.14.0 2.13.0",
    "LESS_EQUAL": "1.14.0 1.14.0",
    "LOCAL_RESPONSE_NORMALIZATION": "1.5.0",
    "LOG": "1.14.0 2.15.0",
    "LOGICAL_AND": "1.11.0",
    "LOGICAL_NOT": "1.11.0",
    "LOGICAL_OR": "1.11.0",
    "LOGISTIC": "1.14.0 1.14.0 2.3.0",
    "LOG_SOFTMAX": "1.14.0 1.14.0",
    "MATRIX_DIAG": "1.14.0",
    "MATRIX_SET_DIAG": "1.14.0",
    "MAXIMUM": "1.14.0 1.14.0 2.3.0 2.3.0",
    "MAX_POOL_2D": "1.5.0 1.14.0 2.3.0",
    "MEAN": "1.6.0 1.14.0 2.4.0",
    "MINIMUM": "1.14.0 1.14.0 2.3.0 2.3.0",
    "MIRROR_PAD": "1.13.1 2.3.0 2.12.0",
    "MUL": "1.5.0 1.14.0 1.15.0 2.3.0 2.6.0 2.11.0 2.13.0 2.23.0",
    "MULTINOMIAL": "2.8.0",
    "NEG": "1.9.0",
    "NON_MAX_SUPPRESSION_V4": "2.1.0",
    "NON_MAX_SUPPRESSION_V5": "2.1.0",
    "NOT_EQUAL": "1.14.0 1.14.0 2.3.0 2.21.0",
    "ONE_HOT": "1.11.0",
    "PACK": "1.11.0 1.14.0 2.3.0 2.13.0",
    "PAD": "1.5.0 1.14.0 2.4.0 2.6.0 2.20.0",
    "PADV2": "1.9.0 1.14.0 2.4.0 2.6.0 2.20.0",
    "POW": "1.10.0",
    "PRELU": "1.8.0",
    "QUANTIZE": "1.14.0 1.15.0 2.15.0 2.18.0",
    "RANDOM_STANDARD_NORMAL": "2.8.0",
    "RANDOM_UNIFORM": "2.8.0",
    "RANGE": "1.13.0 2.14.0",
    "RANK": "1.14.0",
    "REDUCE_ALL": "2.6.0",
    "REDUCE_ANY": "1.11.0",
    "REDUCE_MAX": "1.11.0 1.14.0 2.5.0",
    "REDUCE_MIN": "1.11.0 1.14.0 2.5.0",
    "REDUCE_PROD": "1.11.0 2.6.0",
    "RELU": "1.5.0 2.1.0 2.5.0",
    "RELU6": "1.5.0 1.14.0 2.5.0",
    "RELU_N1_TO_1": "1.5.0",
    "RESHAPE": "1.5.0",
    "RESIZE_BILINEAR": "1.7.0 1.14.0 2.2.0 2.5.0",
    "RESIZE_NEAREST_NEIGHBOR": "1.13.1 1.14.0 2.3.0 2.4.0",
    "REVERSE_SEQUENCE": "1.14.0",
    "REVERSE_V2": "1.14.0 2.2.0 2.5.0",
    "RIGHT_SHIFT": "2.14.0",
    "ROUND": "1.14.0",
    "RSQRT": "1.10.0 2.5.0 2.15.0",
    "SCATTER_ND": "2.1.0",
    "SEGMENT_SUM": "2.2.0",
    "SELECT": "1.14.0 1.14.0 2.12.0 2.12.0",
    "SELECT_V2": "2.2.0 2.12.0",
    "SHAPE": "1.10.0",
    "SIGN": "2.11.0 2.12.0",
    "SIN": "1.9.0",
    "SLICE": "1.14.0 1.14.0 1.14.0 2.4.0 2.5.0 2.14.0 2.21.0",
    "SOFTMAX": "1.5.0 1.14.0 2.3.0",
    "SPACE_TO_BATCH_ND": "1.6.0 1.14.0 2.3.0 2.12.0",
    "SPACE_TO_DEPTH": "1.5.0 1.14.0",
    "SPARSE_TO_DENSE": "1.9.0 1.14.0 1.15.0",
    "SPLIT": "1.5.0 1.14.0 1.14.0 2.3.0",
    "SPLIT_V": "1.13.1 2.3.0",
    "SQRT": "1.10.0 2.21.0",
    "SQUARE": "1.12.0",
    "SQUARED_DIFFERENCE": "1.13.1 2.5.0",
    "SQUEEZE": "1.6.0 2.5.0",
    "STRIDED_SLICE": "1.6.0 1.14.0 2.1.0 2.2.0 2.5.0 2.6.0 2.14.0 2.14.0",
    "SUB": "1.6.0 1.14.0 2.3.0 2.4.0 2.4.0",
    "SUM": "1.10.0 1.15.0",
    "TANH": "1.14.0 1.14.0 2.3.0",
    "TILE": "1.10.1 2.2.0 2.8.0",
    "TOPK_V2": "1.7.0 1.14.0 2.13.0",
    "TRANSPOSE": "1.6.0 1.14.0 1.15.0 2.3.0 2.4.0 2.12.0 2.14.4 2.22.0",
    "TRANSPOSE_CONV": "1.9.0 2.2.0 2.3.0 2.13.0 2.15.0",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "1.13.1 1.14.0 2.3.0 2.12.0",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "1.14.0 1.14.0 2.3.0",
    "UNIQUE": "1.14.0",
    "UNPACK": "1.11.0 1.14.0 2.2.0 2.3.0 2.22.0",
    "UNSORTED_SEGMENT_MAX": "2.10.0",
    "UNSORTED_SEGMENT_MIN": "2.11.0",
    "UNSORTED_SEGMENT_PROD": "2.10.0",
    "UNSORTED_SEGMENT_SUM": "2.10.0",
    "WHERE": "1.14.0 2.8.0",
    "WHILE": "1.15.0",
    "ZEROS_LIKE": "1.12.0",
}


# Element types added to kernels without a new version, measured with tests/litert/forms.py.
_LATER: Final[Mapping[tuple[str, DType], str]] = {
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", DType.INT16): "2.14.0",
    ("SPLIT", DType.INT64): "2.17.0",
    ("DYNAMIC_UPDATE_SLICE", DType.INT16): "2.20.0",
    ("MIRROR_PAD", DType.BOOL): "2.23.0",
    ("TILE", DType.INT16): "2.23.0",
}


def first_release(code: str) -> str:
    """Return the oldest TensorFlow Lite release with an operator."""
    return _RELEASES.get(code, "1.5.0").split()[0]


def operator_version(op: Op) -> int:
    """Return the lowest version of an operator that supports its inputs and options."""
    rule = _RULES.get(op.code)
    return 1 if rule is None else rule(op)


def runtime_version(ops: Sequence[Op]) -> str:
    """Return the oldest TensorFlow Lite release that runs all operators, such as ``2.3.0``."""
    return max(map(operator_release, ops), key=release_order, default="1.5.0")


def operator_release(op: Op) -> str:
    """Return the oldest TensorFlow Lite release that runs an operator."""
    releases = _RELEASES.get(op.code, "1.5.0").split()
    needed = [releases[min(operator_version(op), len(releases)) - 1]]
    kinds = {value.dtype for value in op.inputs if value is not None}
    needed += [_LATER[op.code, kind] for kind in kinds if (op.code, kind) in _LATER]
    if any(value.quantization and value.quantization.block_size for value in op.operands):
        needed.append(_BLOCKS)
    if op.code in MAX_RANKS and max(map(_rank, (*op.inputs, *op.outputs))) > _MAX_OLD_RANK:
        needed.append(_MANY_DIMENSIONS if exceeds_rank(op) else _MEASURED)
    return max(needed, key=release_order)


def release_order(release: str) -> tuple[int, ...]:
    """Return a sort key for releases such as ``2.3.0`` or ``2.14``."""
    return tuple(map(int, release.split(".")))


def _kind(op: Op, index: int = 0) -> DType | None:
    value = op.input_at(index)
    return None if value is None else value.dtype


def _rank(value: Value | None) -> int:
    return 0 if value is None else value.rank or 0


def _by_type(versions: Mapping[DType, int], index: int = 0) -> Rule:
    """Return a rule that depends on the type of an input."""

    def rule(op: Op) -> int:
        kind = _kind(op, index)
        return 1 if kind is None else versions.get(kind, 1)

    return rule


def _repeated(version: int, versions: Mapping[DType, int]) -> Rule:
    """Return a rule that depends on types, then on broadcasting in more than four dimensions."""
    plain = _by_type(versions)

    def rule(op: Op) -> int:
        if plain(op) > version:
            return plain(op)
        shapes = {value.shape for value in op.operands}
        if len(shapes) > 1 and max(map(_rank, op.inputs)) > _MAX_OLD_RANK:
            return version
        return plain(op)

    return rule


def _many_dimensions(version: int, versions: Mapping[DType, int]) -> Rule:
    """Return a rule that depends on the rank of the first input, then on its type."""
    plain = _by_type(versions)
    return lambda op: version if _rank(op.inputs[0]) > _MAX_OLD_RANK else plain(op)


def _is_weights_only(op: Op) -> bool:
    """Return whether the weights are int8 and the activations float."""
    return _kind(op) is DType.FLOAT and _kind(op, 1) is DType.INT8


def _per_channel(op: Op, index: int = 1) -> bool:
    value = op.inputs[index]
    details = None if value is None else value.quantization
    return details is not None and details.scales.size > 1


def _conv_2d(op: Op) -> int:
    shapes = [value.shape for value in op.operands[:2]]
    if len(shapes) == 2 and shapes[0] and shapes[1] and shapes[0][-1] > shapes[1][-1]:
        return 6
    if _is_weights_only(op):
        return 5 if _per_channel(op) else 2
    if _kind(op, 1) is DType.INT4:
        return 7
    return _by_type({DType.INT8: 3, DType.INT16: 4})(op)


def _depthwise(op: Op) -> int:
    if _is_weights_only(op):
        return 6 if _per_channel(op) else 4
    if _kind(op, 1) is DType.INT4:
        return 7
    if _kind(op) in (DType.INT8, DType.INT16):
        return 3 if _kind(op) is DType.INT8 else 5
    dilations = [op.option(f"dilation_{side}_factor", 1) for side in "hw"]
    return 1 if dilations == [1, 1] else 2


def _fully_connected(op: Op) -> int:
    if _kind(op, 1) is DType.INT8 and _per_channel(op):
        return 12
    if _kind(op, 1) is DType.INT4:
        return 13 if _kind(op) is DType.INT16 else 10
    if _kind(op) is DType.INT16:
        return 7
    if len(op.inputs) == 2:
        return 6
    if op.option("keep_num_dims", False):
        return 5
    if _is_weights_only(op):
        return 9 if op.option("asymmetric_quantize_inputs", False) else 3
    return 4 if _kind(op) is DType.INT8 else 1


def _mul(op: Op) -> int:
    kinds = {DType.INT64: 5, DType.COMPLEX64: 6, DType.INT16: 4, DType.INT8: 2}
    version = _by_type(kinds)(op)
    if _kind(op) is not DType.INT8:
        return version
    scales = [_scale(value) for value in (*op.inputs, *op.outputs)]
    return 3 if scales[2] and scales[0] * scales[1] >= scales[2] else version


def _scale(value: Value | None) -> float:
    details = None if value is None else value.quantization
    return 0.0 if details is None else float(details.scales[0])


def _batch_matmul(op: Op) -> int:
    if _is_weights_only(op) and op.option("asymmetric_quantize_inputs", False):
        return 4
    return _by_type({DType.INT8: 2, DType.INT16: 3})(op)


def _sequence(op: Op) -> int:
    if not _is_weights_only(op):
        return 1
    return 3 if op.option("asymmetric_quantize_inputs", False) else 2


def _transpose_conv(op: Op) -> int:
    if op.option("fused_activation_function", "NONE") != "NONE":
        return 4
    if len(op.inputs) == 4 or _kind(op, 2) is DType.INT16:
        return 3
    return _by_type({DType.INT8: 2}, 1)(op)


def _transpose(op: Op) -> int:
    rank = _rank(op.inputs[0])
    if rank > 4:
        return {5: 4, 6: 6}.get(rank, 8)
    return _by_type({DType.INT16: 5, DType.BOOL: 3, DType.INT8: 2})(op)


def _gather(op: Op) -> int:
    if op.option("batch_dims"):
        return 5
    return _by_type({DType.INT16: 4, DType.BOOL: 3, DType.INT8: 2})(op)


def _pad(op: Op) -> int:
    if _kind(op) is DType.BOOL:
        return 5
    if _rank(op.inputs[0]) > 4:
        return 4
    return _by_type({DType.INT16: 3, DType.INT8: 2})(op)


def _blocks(op: Op) -> int:
    if _kind(op) is DType.INT16:
        return 4
    if _rank(op.inputs[0]) != 4:
        return 3
    return 2 if _kind(op) is DType.INT8 else 1


def _resize(op: Op) -> int:
    aligned = op.code == "RESIZE_NEAREST_NEIGHBOR" and op.option("align_corners", False)
    if aligned or op.option("half_pixel_centers", False):
        return 3
    return _by_type({DType.INT16: 4, DType.INT8: 2})(op)


def _cast(op: Op) -> int:
    kinds = {_kind(op), op.outputs[0].dtype}
    newest = {
        DType.BFLOAT16: 7,
        DType.DOUBLE: 5,
        DType.HALF: 5,
        DType.UINT16: 4,
        DType.INT8: 3,
        DType.UINT32: 2,
    }
    return max(newest.get(kind, 1) for kind in kinds if kind is not None)


def _dequantize(op: Op) -> int:
    if _kind(op) is DType.INT8 and _per_channel(op, 0):
        return 5
    return _by_type({DType.INT4: 6, DType.HALF: 3, DType.INT16: 3, DType.INT8: 2})(op)


def _select(op: Op) -> int:
    if any(_rank(value) == 5 for value in op.inputs):
        return 3
    return _by_type({DType.UINT32: 4, DType.INT8: 2})(op)


_EIGHT_BITS: Final = {DType.INT8: 2}
_INTEGERS: Final = {DType.INT8: 2, DType.INT16: 3}

_RULES: Final[Mapping[str, Rule]] = {
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), _repeated(3, {DType.INT16: 4, DType.INT8: 2})),
    **dict.fromkeys(("PAD", "PADV2"), _pad),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _resize),
    **dict.fromkeys(("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"), _blocks),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _by_type({DType.BOOL: 3, DType.INT8: 2})),
    **dict.fromkeys(
        (
            *("MAX_POOL_2D", "AVERAGE_POOL_2D", "CONCATENATION", "SOFTMAX", "MEAN", "MIRROR_PAD"),
            *("REDUCE_MAX", "REDUCE_MIN", "RELU", "RELU6", "RSQRT", "TANH", "LOGISTIC", "PACK"),
            *("LESS", "GREATER_EQUAL", "TOPK_V2"),
        ),
        _by_type(_INTEGERS),
    ),
    **dict.fromkeys(
        (
            *("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "SPLIT_V", "SUM", "LOG_SOFTMAX", "GREATER"),
            *("LESS_EQUAL", "SQUARED_DIFFERENCE", "REDUCE_PROD", "EXP", "LOG", "SQRT", "GELU"),
            *("L2_NORMALIZATION",),
        ),
        _by_type(_EIGHT_BITS),
    ),
    "ABS": _by_type({DType.INT32: 5, DType.INT16: 3, DType.INT8: 2}),
    "ADD": _by_type({DType.INT64: 4, DType.INT16: 3, DType.INT8: 2}),
    "BATCH_MATMUL": _batch_matmul,
    "BROADCAST_TO": lambda op: 3 if _kind(op) in (DType.INT8, DType.INT16) else 2,
    "CAST": _cast,
    "CONV_2D": _conv_2d,
    "DEPTHWISE_CONV_2D": _depthwise,
    "DEQUANTIZE": _dequantize,
    "DIV": _repeated(2, {}),
    "EMBEDDING_LOOKUP": lambda _: 4,
    "EQUAL": _by_type({DType.INT16: 5, DType.INT8: 2}),
    "FAKE_QUANT": lambda op: 2 if op.option("narrow_range", False) else 1,
    "FILL": _by_type({DType.BOOL: 2, DType.INT8: 3, DType.INT16: 3, DType.HALF: 4}, 1),
    "FLOOR_DIV": _by_type({DType.FLOAT: 2, DType.INT8: 3, DType.INT16: 3}),
    "FLOOR_MOD": _by_type({DType.INT8: 2, DType.INT16: 2}),
    "FULLY_CONNECTED": _fully_connected,
    "GATHER": _gather,
    "GATHER_ND": _by_type({DType.BOOL: 5, DType.INT16: 3}),
    "LEAKY_RELU": _by_type({DType.INT16: 2}),
    "MUL": _mul,
    "NOT_EQUAL": _by_type({DType.INT16: 4, DType.INT8: 2}),
    "QUANTIZE": lambda op: 2 if op.outputs[0].dtype is DType.INT16 else 1,
    "RANGE": _by_type({DType.INT64: 2}),
    "REVERSE_V2": _by_type({DType.BOOL: 2, DType.INT8: 3}),
    "SELECT": _select,
    "SELECT_V2": _by_type({DType.UINT32: 2}),
    "SIGN": _by_type({DType.INT32: 2}),
    "SLICE": _many_dimensions(5, {DType.UINT32: 6, DType.INT16: 4, DType.INT8: 2}),
    "SPARSE_TO_DENSE": _by_type({DType.INT64: 2, DType.INT8: 3, DType.UINT8: 3}, 2),
    "SPLIT": _by_type({DType.INT32: 3, DType.INT16: 4, DType.INT8: 2}, 1),
    "STRIDED_SLICE": _many_dimensions(4, {DType.UINT32: 7, DType.BOOL: 3, DType.INT8: 2}),
    "SUB": _repeated(3, {DType.INT64: 4, DType.INT16: 5, DType.INT8: 2}),
    "TILE": _by_type({DType.INT8: 3}),
    "TRANSPOSE": _transpose,
    "TRANSPOSE_CONV": _transpose_conv,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _sequence,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _sequence,
    "UNPACK": _by_type({DType.INT8: 2, DType.UINT8: 2, DType.BOOL: 3, DType.INT16: 4}),
    "WHERE": lambda op: 1 if _kind(op) is DType.BOOL else 2,
}
