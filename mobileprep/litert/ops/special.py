"""Special functions, and others that arithmetic and comparisons come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.ops.math import binary, number
from mobileprep.litert.program import Value
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.types import LONG_NUMBERS, NUMBERS, need, need_float

_BITWISE: Final = frozenset(
    {
        *(DType.INT8, DType.UINT8, DType.INT16, DType.UINT16),
        *(DType.INT32, DType.UINT32),
    }
)
_BY_SIZE: Final = {"IsInf": ("EQUAL", "EqualOptions"), "IsFinite": ("LESS", "LessOptions")}


@lowering("Erf")
def erf(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """ERF, which is no builtin: patterns take it for GELU, and else it becomes arithmetic."""
    need_float(node, inputs)
    return scope.emit("ERF", inputs, scope.output_shape(node), DType.FLOAT)


@lowering("Erfc")
def erfc(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """1 - erf(x), to the precision of float32 around 1."""
    need_float(node, inputs)
    curve = scope.emit("ERF", inputs, scope.output_shape(node), DType.FLOAT)
    return binary(scope, "SUB", "SubOptions", number(scope, curve, 1), curve)


@lowering("ClipByValue")
def clip(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """max(min(x, high), low)."""
    need(node, inputs, LONG_NUMBERS)
    value, low, high = inputs
    below = binary(scope, "MINIMUM", "MaximumMinimumOptions", value, high)
    return binary(scope, "MAXIMUM", "MaximumMinimumOptions", below, low)


@lowering("Tan")
def tan(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """sin(x) / cos(x)."""
    need_float(node, inputs)
    sine, cosine = (scope.emit(c, inputs, inputs[0].shape, DType.FLOAT) for c in ("SIN", "COS"))
    return binary(scope, "DIV", "DivOptions", sine, cosine)


@lowering("EuclideanNorm")
def euclidean_norm(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """sqrt(sum(x * x))."""
    need_float(node, inputs[:1])
    squares = scope.emit("SQUARE", inputs[:1], inputs[0].shape, DType.FLOAT)
    axes = scope.integers_constant(scope.integers(node, 1, "axes"), "axes")
    kept = node.attr_bool("keep_dims", False)
    shape = scope.output_shape(node)
    table = "ReducerOptions"
    total = scope.emit("SUM", [squares, axes], shape, DType.FLOAT, table, keep_dims=kept)
    return scope.emit("SQRT", [total], shape, DType.FLOAT)


@lowering("IsNan")
def is_nan(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """x != x."""
    need_float(node, inputs)
    values = [inputs[0], inputs[0]]
    return scope.emit("NOT_EQUAL", values, inputs[0].shape, DType.BOOL, "NotEqualOptions")


@lowering(*_BY_SIZE)
def by_size(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """abs(x) beside infinity: equal to it, or less, which no NaN is."""
    need_float(node, inputs)
    size = scope.emit("ABS", inputs, inputs[0].shape, DType.FLOAT)
    values = [size, number(scope, size, np.inf)]
    code, options = _BY_SIZE[node.op]
    return scope.emit(code, values, size.shape, DType.BOOL, options)


@lowering("BitwiseXor")
def bitwise_xor(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """BITWISE_XOR."""
    need(node, inputs, _BITWISE)
    shape, kind = scope.output_shape(node), inputs[0].dtype
    return scope.emit("BITWISE_XOR", inputs, shape, kind, "BitwiseXorOptions")


@lowering("Mod", "TruncateMod")
def truncate_mod(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """x - trunc(x / y) * y of whole numbers."""
    need(node, inputs, NUMBERS - {DType.FLOAT})
    quotient = binary(scope, "DIV", "DivOptions", *inputs)
    whole = binary(scope, "MUL", "MulOptions", quotient, inputs[1])
    return binary(scope, "SUB", "SubOptions", inputs[0], whole)
