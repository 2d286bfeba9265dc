"""Special functions, and others that arithmetic and comparisons come to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.arithmetic import Arithmetic
from mobileprep.litert.ops.math import binary, number
from mobileprep.litert.program import Value
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import known_size
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
_LAST_BIT: Final = 31


@lowering("Lgamma")
def lgamma(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """log(abs(gamma(x))) by Lanczos' approximation, reflected for x < 0.5."""
    need_float(node, inputs)
    (x,) = inputs
    work = Arithmetic(scope)
    is_small = work.compare("LESS", x, 0.5)
    # gamma(z + 1), of x where that is at least 0.5 and of 1 - x elsewhere.
    z = work.select(is_small, work.one("NEG", x), work.add(x, -1.0))
    total = number(scope, x, _LANCZOS[0])
    for i, coefficient in enumerate(_LANCZOS[1:], start=1):
        total = work.add(work.div(coefficient, work.add(z, float(i))), total)
    t = work.add(z, _SHIFT)
    power = work.mul(work.add(z, 0.5), work.one("LOG", t))
    gamma = work.add(
        work.add(work.sub(power, t), work.one("LOG", total)), math.log(2 * math.pi) / 2
    )
    # gamma(x) * gamma(1 - x) = pi / sin(pi * x), where the distance to an integer is exact.
    size = work.one("ABS", x)
    distance = work.one("ABS", work.sub(size, work.one("ROUND", size)))
    sine = work.one("SIN", work.mul(distance, math.pi))
    reflected = work.sub(work.sub(math.log(math.pi), work.one("LOG", sine)), gamma)
    return work.select(is_small, reflected, gamma)


# Taylor's series of sinh(x) / x, asinh(x) / x, and atanh(x) / x as polynomials of x * x, the
# coefficient of the highest power first.
_SINH: Final = (1 / 362880, 1 / 5040, 1 / 120, 1 / 6, 1.0)
_ARSINH: Final = (105 / 3456, -15 / 336, 3 / 40, -1 / 6, 1.0)
_ARTANH: Final = (1 / 9, 1 / 7, 1 / 5, 1 / 3, 1.0)
# From here on sqrt(x * x + 1) is x in float32, and x * x soon overflows.
_LARGE: Final = 1e6


@lowering("Sinh", "Cosh")
def hyperbolic(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """(exp(x) - exp(-x)) / 2, by a polynomial around 0, or the sum instead of the difference."""
    need_float(node, inputs)
    (x,) = inputs
    work = Arithmetic(scope)
    # Half of the exponent twice, as exp(x) overflows before exp(x) / 2 does.
    roots = [work.one("EXP", work.mul(x, share)) for share in (0.5, -0.5)]
    grown, shrunk = (work.mul(work.mul(root, 0.5), root) for root in roots)
    if node.op == "Cosh":
        return work.add(grown, shrunk)
    return _near_zero(work, x, _SINH, work.sub(grown, shrunk), edge=1.0)


@lowering("Asinh", "Acosh", "Atanh")
def inverse_hyperbolic(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Logarithms, and polynomials around 0, where logarithms lose precision."""
    need_float(node, inputs)
    (x,) = inputs
    work = Arithmetic(scope)
    if node.op == "Acosh":
        near = work.minimum(x, _LARGE)
        root = work.one("SQRT", work.mul(work.sub(near, 1.0), work.add(near, 1.0)))
        found = _arsinh(work, work.select(work.compare("LESS", x, _LARGE), root, x))
        not_a_number = scope.constant(np.float32(np.nan))
        return work.select(work.compare("LESS", x, 1.0), not_a_number, found)
    if node.op == "Asinh":
        size = work.one("ABS", x)
        return work.mul(work.one("SIGN", x), _arsinh(work, size))
    logarithms = [work.one("LOG", y) for y in (work.add(x, 1.0), work.sub(1.0, x))]
    far = work.mul(work.sub(*logarithms), 0.5)
    return _near_zero(work, x, _ARTANH, far)


def _arsinh(work: Arithmetic, x: Value) -> Value:
    """asinh(x) of numbers that are not negative."""
    near = work.minimum(x, _LARGE)
    root = work.one("SQRT", work.add(work.mul(near, near), 1.0))
    far = work.add(work.one("LOG", x), math.log(2))
    middle = work.select(
        work.compare("LESS", x, _LARGE), work.one("LOG", work.add(near, root)), far
    )
    return _near_zero(work, x, _ARSINH, middle)


def _near_zero(
    work: Arithmetic, x: Value, coefficients: Sequence[float], otherwise: Value, edge: float = 0.25
) -> Value:
    """x times a polynomial of x * x between -edge and edge, and another value elsewhere.

    Args:
        work: emits operators.
        x: the variable.
        coefficients: the polynomial's, that of the highest power first.
        otherwise: the value elsewhere.
        edge: where the polynomial ends.
    """
    near = work.minimum(work.maximum(x, -edge), edge)
    square = work.mul(near, near)
    series: Value | float = coefficients[0]
    for coefficient in coefficients[1:]:
        series = work.add(work.mul(series, square), coefficient)
    is_near = work.compare("LESS", work.one("ABS", x), edge)
    return work.select(is_near, work.mul(near, series), otherwise)


@lowering("Asin", "Acos", "Atan")
def inverse_trigonometric(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """ATAN2 of the sides of a triangle."""
    need_float(node, inputs)
    (x,) = inputs
    work = Arithmetic(scope)
    if node.op == "Atan":
        zeros = scope.emit("ZEROS_LIKE", [x], x.shape, x.dtype, "ZerosLikeOptions")
        sides = [x, work.add(zeros, 1.0)]
    else:
        other = work.one("SQRT", work.mul(work.sub(1.0, x), work.add(x, 1.0)))
        sides = [x, other] if node.op == "Asin" else [other, x]
    return scope.emit("ATAN2", sides, x.shape, x.dtype, "ATan2Options")


@lowering("RightShift")
def right_shift(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """RIGHT_SHIFT."""
    need(node, inputs, _BITWISE)
    shape, kind = scope.output_shape(node), inputs[0].dtype
    return scope.emit("RIGHT_SHIFT", inputs, shape, kind, "RightShiftOptions")


@lowering("LeftShift")
def left_shift(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A product with a power of 2."""
    need(node, inputs, {DType.INT32})
    work = Arithmetic(scope, DType.INT32)
    known = scope.known(node, 1)
    if known is None:
        return work.mul(inputs[0], work.two("POW", 2, inputs[1]))
    factor = np.left_shift(1, np.clip(known, 0, _LAST_BIT)).astype(np.int32)
    return work.mul(inputs[0], scope.constant(factor))


@lowering("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits")
def cross_entropy(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """The sum of -labels * log_softmax(logits), and softmax(logits) - labels."""
    need_float(node, inputs[:1])
    logits, labels = inputs
    work, shape = Arithmetic(scope), scope.output_shape(node, 1)
    if node.op.startswith("Sparse"):
        depth = scope.integers_constant(np.array(known_size(logits, 1)))
        marks = [scope.constant(np.float32(mark)) for mark in (1, 0)]
        given = [labels, depth, *marks]
        labels = scope.emit("ONE_HOT", given, shape, logits.dtype, "OneHotOptions", axis=-1)
    probable = scope.emit(
        "SOFTMAX", [logits], logits.shape, logits.dtype, "SoftmaxOptions", beta=1.0
    )
    logarithm = scope.emit("LOG_SOFTMAX", [logits], logits.shape, logits.dtype, "LogSoftmaxOptions")
    products = work.mul(labels, logarithm)
    axes, loss = scope.integers_constant([1], "axes"), scope.output_shape(node)
    options = {"keep_dims": False}
    total = scope.emit("SUM", [products, axes], loss, logits.dtype, "ReducerOptions", **options)
    return work.one("NEG", total), work.sub(probable, labels)
