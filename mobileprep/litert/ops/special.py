"""Special functions, and others that arithmetic and comparisons come to."""

from __future__ import annotations

import math
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


# Lanczos' approximation of the gamma function with g = 7 and 9 coefficients, by Godfrey; the first
# coefficient is that of no pole.
_LANCZOS: Final = (
    *(0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313),
    *(-176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6),
    1.5056327351493116e-7,
)
_SHIFT: Final = 7.5


@lowering("Lgamma")
def lgamma(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """log(abs(gamma(x))) by Lanczos' approximation, reflected for x < 0.5."""
    need_float(node, inputs)
    (x,) = inputs

    def add(a: Value, b: Value | float) -> Value:
        return binary(
            scope, "ADD", "AddOptions", a, b if isinstance(b, Value) else number(scope, x, b)
        )

    def subtract(a: Value | float, b: Value) -> Value:
        left = a if isinstance(a, Value) else number(scope, x, a)
        return binary(scope, "SUB", "SubOptions", left, b)

    def log(a: Value) -> Value:
        return scope.emit("LOG", [a], a.shape, a.dtype)

    def choose(otherwise: Value, reflected: Value) -> Value:
        values = [is_small, reflected, otherwise]
        return scope.emit("SELECT_V2", values, x.shape, x.dtype, "SelectV2Options")

    half = number(scope, x, 0.5)
    is_small = scope.emit("LESS", [x, half], x.shape, DType.BOOL, "LessOptions")
    # gamma(z + 1), of x where that is at least 0.5 and of 1 - x elsewhere.
    z = choose(add(x, -1.0), scope.emit("NEG", [x], x.shape, x.dtype))
    total = number(scope, x, _LANCZOS[0])
    for i, coefficient in enumerate(_LANCZOS[1:], start=1):
        term = binary(scope, "DIV", "DivOptions", number(scope, x, coefficient), add(z, float(i)))
        total = add(term, total)
    t = add(z, _SHIFT)
    power = binary(scope, "MUL", "MulOptions", add(z, 0.5), log(t))
    gamma = add(add(subtract(power, t), log(total)), math.log(2 * math.pi) / 2)
    # gamma(x) * gamma(1 - x) = pi / sin(pi * x), where the distance to an integer is exact.
    size = scope.emit("ABS", [x], x.shape, x.dtype)
    whole = scope.emit("ROUND", [size], x.shape, x.dtype)
    distance = scope.emit("ABS", [subtract(size, whole)], x.shape, x.dtype)
    angle = binary(scope, "MUL", "MulOptions", distance, number(scope, x, math.pi))
    sine = scope.emit("SIN", [angle], x.shape, x.dtype)
    reflected = subtract(subtract(math.log(math.pi), log(sine)), gamma)
    return choose(gamma, reflected)
