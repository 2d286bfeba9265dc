"""Arithmetic element by element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_int32, reshaped
from mobileprep.litert.types import FLOATS, LONG_NUMBERS, NAMES, NUMBERS, need, need_float
from mobileprep.ops.shape_function import broadcast

_SMALL = frozenset({DType.UINT8, DType.INT8, DType.INT16})
_BOOLS = frozenset({DType.BOOL})
_BYTES = LONG_NUMBERS | _SMALL | {DType.UINT16, DType.UINT32}
_COMPARED = LONG_NUMBERS | _SMALL

# For each op its builtin, the table of its options, and the types that the runtime takes.
_TWO: Final[dict[str, tuple[str, str, frozenset[DType]]]] = {
    "Add": ("ADD", "AddOptions", LONG_NUMBERS),
    "AddV2": ("ADD", "AddOptions", LONG_NUMBERS),
    "Sub": ("SUB", "SubOptions", LONG_NUMBERS),
    "Mul": ("MUL", "MulOptions", LONG_NUMBERS),
    "RealDiv": ("DIV", "DivOptions", FLOATS),
    "FloorDiv": ("FLOOR_DIV", "FloorDivOptions", NUMBERS),
    "FloorMod": ("FLOOR_MOD", "FloorModOptions", LONG_NUMBERS),
    "SquaredDifference": ("SQUARED_DIFFERENCE", "SquaredDifferenceOptions", NUMBERS),
    "Minimum": ("MINIMUM", "MaximumMinimumOptions", LONG_NUMBERS),
    "Maximum": ("MAXIMUM", "MaximumMinimumOptions", LONG_NUMBERS),
    "Pow": ("POW", "PowOptions", NUMBERS),
}
_COMPARISONS: Final[dict[str, tuple[str, str]]] = {
    "Equal": ("EQUAL", "EqualOptions"),
    "NotEqual": ("NOT_EQUAL", "NotEqualOptions"),
    "Less": ("LESS", "LessOptions"),
    "LessEqual": ("LESS_EQUAL", "LessEqualOptions"),
    "Greater": ("GREATER", "GreaterOptions"),
    "GreaterEqual": ("GREATER_EQUAL", "GreaterEqualOptions"),
}
_LOGIC: Final[dict[str, tuple[str, str]]] = {
    "LogicalAnd": ("LOGICAL_AND", "LogicalAndOptions"),
    "LogicalOr": ("LOGICAL_OR", "LogicalOrOptions"),
    "LogicalNot": ("LOGICAL_NOT", "LogicalNotOptions"),
}
_ONE: Final[dict[str, tuple[str, frozenset[DType]]]] = {
    "Abs": ("ABS", FLOATS | {DType.INT32}),
    "Neg": ("NEG", LONG_NUMBERS),
    "Exp": ("EXP", FLOATS),
    "Log": ("LOG", FLOATS),
    "Sqrt": ("SQRT", FLOATS),
    "Rsqrt": ("RSQRT", FLOATS),
    "Sin": ("SIN", FLOATS),
    "Cos": ("COS", FLOATS),
    "Floor": ("FLOOR", FLOATS),
    "Ceil": ("CEIL", FLOATS),
    "Round": ("ROUND", FLOATS),
    "Rint": ("ROUND", FLOATS),
    "Sign": ("SIGN", FLOATS | {DType.INT32}),
}


def binary(scope: Scope, code: str, table: str, left: Value, right: Value) -> Value:
    """An operator on two values of one type, the smaller one repeated along the larger."""
    shape = broadcast(left.shape, right.shape)
    return scope.emit(code, [left, right], shape, left.dtype, table)


def number(scope: Scope, value: Value, x: float) -> Value:
    """A constant number of a value's type."""
    return scope.constant(np.array(x, value.dtype.numpy))


@lowering(*_TWO)
def two(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A builtin on two tensors."""
    code, table, types = _TWO[node.op]
    need(node, inputs, types)
    shape, inputs = scope.output_shape(node), _with_rank_of_numbers(scope, inputs)
    if code == "FLOOR_DIV" and inputs[0].dtype is DType.FLOAT:
        # FLOOR_DIV fails for a divisor of 0, where TensorFlow returns infinity or NaN.
        quotient = scope.emit("DIV", inputs, shape, DType.FLOAT, "DivOptions")
        return scope.emit("FLOOR", [quotient], shape, DType.FLOAT)
    return scope.emit(code, inputs, shape, inputs[0].dtype, table)


def _with_rank_of_numbers(scope: Scope, inputs: Sequence[Value]) -> Sequence[Value]:
    """Two inputs, of which a constant of one element has no more dimensions than the other one.

    XNNPACK takes such a constant for a scalar in int8, and loses its dimensions.
    """
    left, right = inputs
    if left.data is not None:
        return [left, _with_rank_of(scope, left, right)]
    return [_with_rank_of(scope, right, left), right]


def _with_rank_of(scope: Scope, constant: Value, value: Value) -> Value:
    sizes = value.shape
    if constant.data is None or constant.data.size != 1 or sizes is None or sizes.count(-1) > 1:
        return value
    missing = constant.data.ndim - len(sizes)
    return reshaped(scope, value, (*(1,) * missing, *sizes)) if missing > 0 else value


@lowering("Div", "TruncateDiv")
def div(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """DIV, which cuts whole numbers off towards zero as these ops do; of floats it cuts nothing."""
    need(node, inputs, NUMBERS - FLOATS if node.op == "TruncateDiv" else NUMBERS)
    return scope.emit("DIV", inputs, scope.output_shape(node), inputs[0].dtype, "DivOptions")


@lowering("Atan2")
def atan2(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """ATAN2, which takes tensors of one shape."""
    need(node, inputs, FLOATS)
    shape = scope.output_shape(node)
    values = [repeated(scope, value, shape) for value in inputs]
    return scope.emit("ATAN2", values, shape, inputs[0].dtype, "ATan2Options")


def repeated(scope: Scope, value: Value, shape: TensorShape) -> Value:
    """A value in a shape that its own is a part of."""
    if value.shape == shape and shape is not None:
        return value
    if shape is None or -1 in shape:
        reason = "it repeats elements to sizes that are not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    sizes = scope.integers_constant(shape, "sizes")
    options = "BroadcastToOptions"
    return scope.emit("BROADCAST_TO", [value, sizes], shape, value.dtype, options)


@lowering(*_COMPARISONS)
def comparison(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A comparison; of small integers as larger ones, as theirs need scales in the runtime."""
    code, table = _COMPARISONS[node.op]
    plain = code in ("EQUAL", "NOT_EQUAL")
    need(node, inputs, _COMPARED | _BOOLS if plain else _COMPARED)
    if inputs[0].dtype in _SMALL:
        inputs = [as_int32(scope, node, i, value) for i, value in enumerate(inputs)]
    return scope.emit(code, inputs, scope.output_shape(node), DType.BOOL, table)


@lowering(*_LOGIC)
def logic(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A logical operator."""
    code, table = _LOGIC[node.op]
    return scope.emit(code, inputs, scope.output_shape(node), DType.BOOL, table)


@lowering(*_ONE)
def one(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A builtin on one tensor."""
    code, types = _ONE[node.op]
    if code == "SIGN" and inputs[0].dtype is DType.INT64:
        return _sign(scope, inputs[0])
    need(node, inputs, types)
    return scope.emit(code, inputs, scope.output_shape(node), inputs[0].dtype)


def _sign(scope: Scope, value: Value) -> Value:
    """(x > 0) - (x < 0)."""
    kinds = {"in_data_type": NAMES[DType.BOOL], "out_data_type": NAMES[value.dtype]}
    sides = []
    for name in ("Greater", "Less"):
        code, table = _COMPARISONS[name]
        given = [value, number(scope, value, 0)]
        side = scope.emit(code, given, value.shape, DType.BOOL, table)
        sides.append(scope.emit("CAST", [side], value.shape, value.dtype, "CastOptions", **kinds))
    return binary(scope, "SUB", "SubOptions", *sides)


@lowering("Square")
def square(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """SQUARE; x * x of integers."""
    if inputs[0].dtype is DType.FLOAT:
        return scope.emit("SQUARE", inputs, scope.output_shape(node), DType.FLOAT)
    need(node, inputs, LONG_NUMBERS)
    return binary(scope, "MUL", "MulOptions", inputs[0], inputs[0])


@lowering("AddN")
def add_n(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """ADD_N; ADD of two, which the runtime computes faster."""
    need(node, inputs, NUMBERS)
    if len(inputs) == 1:
        return inputs[0]
    shape = scope.output_shape(node)
    if len(inputs) == 2:
        return scope.emit("ADD", inputs, shape, inputs[0].dtype, "AddOptions")
    return scope.emit("ADD_N", inputs, shape, inputs[0].dtype, "AddNOptions")


@lowering("BiasAdd", "BiasAddV1")
def bias_add(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """ADD along the channels."""
    need(node, inputs, LONG_NUMBERS)
    value, bias = inputs
    first = node.attr_str("data_format", "NHWC") in ("NCHW", "NCDHW")
    if first and (value.rank or 0) > 2:
        if bias.data is None:
            msg = "its bias is computed"
            raise CannotExpressError(msg, "put the channels last")
        sizes = (bias.data.size, *(1,) * ((value.rank or 0) - 2))
        bias = scope.constant(bias.data.reshape(sizes), bias.name)
    shape = scope.output_shape(node)
    return scope.emit("ADD", [value, bias], shape, value.dtype, "AddOptions")


@lowering("Reciprocal", "Inv")
def reciprocal(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """1 / x."""
    need_float(node, inputs)
    return binary(scope, "DIV", "DivOptions", number(scope, inputs[0], 1), inputs[0])


# For each op that gives 0 where one of its inputs is 0: which one, and what it gives elsewhere.
_ZERO_WHERE: Final[dict[str, tuple[int, str, str]]] = {
    "DivNoNan": (1, "DIV", "DivOptions"),
    "MulNoNan": (1, "MUL", "MulOptions"),
    "Xdivy": (0, "DIV", "DivOptions"),
}


@lowering(*_ZERO_WHERE)
def zero_where(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A quotient or product, and 0 where one of the two is 0, whatever the other."""
    need_float(node, inputs)
    index, code, table = _ZERO_WHERE[node.op]
    result = binary(scope, code, table, *inputs)
    return _zero_where(scope, node, inputs[index], result)


@lowering("Xlogy", "Xlog1py")
def xlogy(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """x * log(y), or x * log(y + 1), and 0 where x is 0, whatever y."""
    need_float(node, inputs)
    x, y = inputs
    if node.op == "Xlog1py":
        y = _one_more(scope, y)
    logarithm = scope.emit("LOG", [y], y.shape, y.dtype)
    return _zero_where(scope, node, x, binary(scope, "MUL", "MulOptions", x, logarithm))


def _zero_where(scope: Scope, node: Node, tested: Value, result: Value) -> Value:
    """A result, and 0 where another value is 0."""
    zero = number(scope, tested, 0)
    is_zero = scope.emit("EQUAL", [tested, zero], tested.shape, DType.BOOL, "EqualOptions")
    shape = scope.output_shape(node)
    return scope.emit("SELECT_V2", [is_zero, zero, result], shape, result.dtype, "SelectV2Options")


@lowering("Expm1")
def expm1(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """exp(x) - 1, to the precision of float32 around 1."""
    need_float(node, inputs)
    grown = scope.emit("EXP", inputs, inputs[0].shape, inputs[0].dtype)
    return binary(scope, "SUB", "SubOptions", grown, number(scope, grown, 1))


@lowering("Log1p")
def log1p(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """log(x + 1), to the precision of float32 around 1."""
    need_float(node, inputs)
    more = _one_more(scope, inputs[0])
    return scope.emit("LOG", [more], more.shape, more.dtype)


def _one_more(scope: Scope, value: Value) -> Value:
    return binary(scope, "ADD", "AddOptions", value, number(scope, value, 1))


@lowering("Cast")
def cast(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """CAST."""
    wanted = node.attr_dtype("DstT")
    if wanted is inputs[0].dtype:
        return inputs[0]
    if wanted not in NAMES or wanted is DType.STRING or inputs[0].dtype is DType.STRING:
        reason = f"LiteRT does not cast {inputs[0].dtype.short} to {wanted.short}"
        raise CannotExpressError(reason, "cut the graph behind it")
    kinds = {"in_data_type": NAMES[inputs[0].dtype], "out_data_type": NAMES[wanted]}
    return scope.emit("CAST", inputs, scope.output_shape(node), wanted, "CastOptions", **kinds)


@lowering("Bitcast")
def bitcast(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """BITCAST."""
    wanted = node.attr_dtype("type")
    need(node, [*inputs, Value("", wanted, ())], _BYTES)
    return scope.emit("BITCAST", inputs, scope.output_shape(node), wanted, "BitcastOptions")


@lowering("Cumsum")
def cumsum(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """CUMSUM."""
    need(node, inputs[:1], LONG_NUMBERS)
    axis = scope.integers_constant([*scope.integers(node, 1, "axis")], "axis")
    return scope.emit(
        "CUMSUM",
        [inputs[0], axis],
        scope.output_shape(node),
        inputs[0].dtype,
        "CumsumOptions",
        exclusive=node.attr_bool("exclusive", False),
        reverse=node.attr_bool("reverse", False),
    )
