"""Element-wise arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.litert.arithmetic import Arithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import as_int32, is_channels_first, known_size, reshaped
from mobileprep.litert.types import FLOATS, LONG_NUMBERS, NAMES, NUMBERS, need, need_float

_SMALL = frozenset({DType.UINT8, DType.INT8, DType.INT16})
_BOOLS = frozenset({DType.BOOL})
_BYTES = LONG_NUMBERS | _SMALL | {DType.UINT16, DType.UINT32}
_COMPARED = LONG_NUMBERS | _SMALL
_BITWISE: Final = _SMALL | {DType.UINT16, DType.INT32, DType.UINT32}

# For each op: its builtin, and the types that the runtime supports.
_TWO: Final[Mapping[str, tuple[str, frozenset[DType]]]] = {
    **dict.fromkeys(("Add", "AddV2"), ("ADD", LONG_NUMBERS)),
    "Sub": ("SUB", LONG_NUMBERS),
    "Mul": ("MUL", LONG_NUMBERS),
    "RealDiv": ("DIV", FLOATS),
    "FloorDiv": ("FLOOR_DIV", NUMBERS),
    "FloorMod": ("FLOOR_MOD", LONG_NUMBERS),
    "SquaredDifference": ("SQUARED_DIFFERENCE", NUMBERS),
    "Minimum": ("MINIMUM", LONG_NUMBERS),
    "Maximum": ("MAXIMUM", LONG_NUMBERS),
    "Pow": ("POW", NUMBERS),
}
# DIV truncates integer quotients like Div and TruncateDiv, and does not truncate floats.
_UNEXPANDED: Final[Mapping[str, tuple[str, frozenset[DType]]]] = {
    "BitwiseXor": ("BITWISE_XOR", _BITWISE),
    "Div": ("DIV", NUMBERS),
    "RightShift": ("RIGHT_SHIFT", _BITWISE),
    "TruncateDiv": ("DIV", NUMBERS - FLOATS),
}
_COMPARISONS: Final = {
    "Equal": "EQUAL",
    "NotEqual": "NOT_EQUAL",
    "Less": "LESS",
    "LessEqual": "LESS_EQUAL",
    "Greater": "GREATER",
    "GreaterEqual": "GREATER_EQUAL",
}
_LOGIC: Final = {
    "LogicalAnd": "LOGICAL_AND",
    "LogicalOr": "LOGICAL_OR",
    "LogicalNot": "LOGICAL_NOT",
}
# ERF is not a builtin: it is fused into GELU, or expanded to arithmetic.
_ONE: Final[Mapping[str, tuple[str, frozenset[DType]]]] = {
    "Abs": ("ABS", FLOATS | {DType.INT32}),
    "Neg": ("NEG", LONG_NUMBERS),
    "Round": ("ROUND", FLOATS),
    "Rint": ("ROUND", FLOATS),
    "Sign": ("SIGN", FLOATS | {DType.INT32}),
    "Sigmoid": ("LOGISTIC", FLOATS),
    "LogSoftmax": ("LOG_SOFTMAX", FLOATS),
    **{op: (op.upper(), FLOATS) for op in ("Exp", "Log", "Sqrt", "Rsqrt", "Sin", "Cos", "Floor")},
    **{op: (op.upper(), FLOATS) for op in ("Ceil", "Relu", "Relu6", "Elu", "Tanh", "Erf")},
}


@lowering(*_TWO)
def two(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit a builtin with two operands."""
    code, types = _TWO[node.op]
    need(inputs, types)
    shape, inputs = scope.output_shape(node), _with_rank_of_numbers(scope, inputs)
    if code == "FLOOR_DIV" and inputs[0].dtype is DType.FLOAT:
        # FLOOR_DIV fails for a divisor of 0, where TensorFlow returns infinity or NaN.
        return scope.emit_plain("FLOOR", scope.emit("DIV", inputs, shape), shape)
    return scope.emit(code, inputs, shape)


def _with_rank_of_numbers(scope: Scope, inputs: Sequence[Value]) -> Sequence[Value]:
    """Expand the other input to the rank of a constant with one element.

    XNNPACK treats such an int8 constant as a scalar, and loses its dimensions.
    """
    lhs, rhs = inputs
    if lhs.data is not None:
        return [lhs, _with_rank_of(scope, lhs, rhs)]
    return [_with_rank_of(scope, rhs, lhs), rhs]


def _with_rank_of(scope: Scope, constant: Value, value: Value) -> Value:
    sizes = value.shape
    if constant.data is None or constant.data.size != 1 or sizes is None or sizes.count(-1) > 1:
        return value
    missing = constant.data.ndim - len(sizes)
    return reshaped(scope, value, (*(1,) * missing, *sizes)) if missing > 0 else value


@lowering(*_UNEXPANDED)
def unexpanded(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit a builtin with two operands of any ranks."""
    code, types = _UNEXPANDED[node.op]
    need(inputs, types)
    return scope.emit(code, inputs, scope.output_shape(node))


@lowering("Atan2")
def atan2(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit ATAN2, which requires inputs of equal shape."""
    need(inputs, FLOATS)
    shape = scope.output_shape(node)
    values = [repeated(scope, value, shape) for value in inputs]
    return scope.emit("ATAN2", values, shape, inputs[0].dtype)


def repeated(scope: Scope, value: Value, shape: TensorShape) -> Value:
    """Broadcast a value to a shape."""
    if value.shape == shape and shape is not None:
        return value
    if shape is None or -1 in shape:
        reason = "it repeats elements to sizes that are not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    sizes = scope.integers_constant(shape, "sizes")
    return scope.emit("BROADCAST_TO", [value, sizes], shape)


@lowering(*_COMPARISONS)
def comparison(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit a comparison; small integers are cast, because their kernels require scales."""
    code = _COMPARISONS[node.op]
    plain = code in ("EQUAL", "NOT_EQUAL")
    need(inputs, _COMPARED | _BOOLS if plain else _COMPARED)
    if inputs[0].dtype in _SMALL:
        inputs = [as_int32(scope, node, i, value) for i, value in enumerate(inputs)]
    return scope.emit(code, inputs, scope.output_shape(node), DType.BOOL)


@lowering(*_LOGIC)
def logic(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    return scope.emit(_LOGIC[node.op], inputs, scope.output_shape(node), DType.BOOL)


@lowering(*_ONE)
def one(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    code, types = _ONE[node.op]
    if code == "SIGN" and inputs[0].dtype is DType.INT64:
        return _sign(scope, inputs[0])
    need(inputs, types)
    return scope.emit_plain(code, inputs[0], scope.output_shape(node))


def _sign(scope: Scope, value: Value) -> Value:
    """Compute (x > 0) - (x < 0)."""
    work = Arithmetic(scope, value.dtype)
    sides = (work.compare(code, value, 0) for code in ("GREATER", "LESS"))
    return work.sub(*(work.cast(side, value.dtype) for side in sides))


@lowering("Square")
def square(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit SQUARE, or x * x for integers."""
    (x,) = inputs
    if x.dtype is DType.FLOAT:
        return scope.emit_plain("SQUARE", x, scope.output_shape(node))
    need(inputs, LONG_NUMBERS)
    return Arithmetic(scope, x.dtype).mul(x, x)


@lowering("AddN")
def add_n(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit ADD_N, or ADD for two inputs, which is faster."""
    need(inputs, NUMBERS)
    if len(inputs) == 1:
        return inputs[0]
    code = "ADD" if len(inputs) == 2 else "ADD_N"
    return scope.emit(code, inputs, scope.output_shape(node))


@lowering("BiasAdd", "BiasAddV1")
def bias_add(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit ADD along the channels."""
    need(inputs, LONG_NUMBERS)
    value, bias = inputs
    if is_channels_first(node) and (value.rank or 0) > 2:
        if bias.data is None:
            msg = "its bias is computed"
            raise CannotExpressError(msg, "put the channels last")
        sizes = (bias.data.size, *(1,) * ((value.rank or 0) - 2))
        bias = scope.constant(bias.data.reshape(sizes), bias.name)
    return scope.emit("ADD", [value, bias], scope.output_shape(node))


@lowering("Reciprocal", "Inv")
def reciprocal(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute 1 / x."""
    need_float(inputs)
    return Arithmetic(scope).div(1, inputs[0])


# For ops that return 0 if one input is 0: the index of that input, and the operator otherwise.
_ZERO_WHERE: Final = {"DivNoNan": (1, "DIV"), "MulNoNan": (1, "MUL"), "Xdivy": (0, "DIV")}


@lowering(*_ZERO_WHERE)
def zero_where(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit a quotient or product that is 0 if one input is 0, whatever the other."""
    need_float(inputs)
    index, code = _ZERO_WHERE[node.op]
    return _zero_where(scope, node, inputs[index], Arithmetic(scope).two(code, *inputs))


@lowering("Xlogy", "Xlog1py")
def xlogy(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute x * log(y), or x * log(y + 1), which is 0 if x is 0, whatever y."""
    need_float(inputs)
    (x, y), work = inputs, Arithmetic(scope)
    if node.op == "Xlog1py":
        y = work.add(y, 1)
    return _zero_where(scope, node, x, work.mul(x, work.one("LOG", y)))


def _zero_where(scope: Scope, node: Node, tested: Value, result: Value) -> Value:
    """Replace a result by 0 where another value is 0."""
    zero = Arithmetic(scope).number(0)
    values = [Arithmetic(scope).compare("EQUAL", tested, zero), zero, result]
    return scope.emit("SELECT_V2", values, scope.output_shape(node), result.dtype)


@lowering("Expm1")
def expm1(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute exp(x) - 1, with the precision of float32 around 1."""
    need_float(inputs)
    work = Arithmetic(scope)
    return work.sub(work.one("EXP", inputs[0]), 1)


@lowering("Log1p")
def log1p(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute log(x + 1), with the precision of float32 around 1."""
    need_float(inputs)
    work = Arithmetic(scope)
    return work.one("LOG", work.add(inputs[0], 1))


@lowering("Cast")
def cast(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    dtype = node.attr_dtype("DstT")
    if dtype is inputs[0].dtype:
        return inputs[0]
    if dtype not in NAMES or dtype is DType.STRING or inputs[0].dtype is DType.STRING:
        reason = f"LiteRT does not cast {inputs[0].dtype.short} to {dtype.short}"
        raise CannotExpressError(reason, "cut the graph behind it")
    kinds = {"in_data_type": NAMES[inputs[0].dtype], "out_data_type": NAMES[dtype]}
    return scope.emit("CAST", inputs, scope.output_shape(node), dtype, **kinds)


@lowering("Bitcast")
def bitcast(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    dtype = node.attr_dtype("type")
    need([*inputs, Value("", dtype, ())], _BYTES)
    return scope.emit("BITCAST", inputs, scope.output_shape(node), dtype)


@lowering("Cumsum")
def cumsum(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    need(inputs[:1], LONG_NUMBERS)
    axis = scope.integers_constant([*scope.integers(node, 1, "axis")], "axis")
    return scope.emit(
        "CUMSUM",
        [inputs[0], axis],
        scope.output_shape(node),
        exclusive=node.attr_bool("exclusive", False),
        reverse=node.attr_bool("reverse", False),
    )


# The constants of the paper that defines SELU (Klambauer et al., 2017), as in TensorFlow.
_SELU_SCALE: Final = 1.0507009873554804934193349852946
_SELU_ALPHA: Final = 1.6732632423543772848170429916717


@lowering("Softmax")
def softmax(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    need_float(inputs)
    return scope.emit("SOFTMAX", inputs, scope.output_shape(node), beta=1.0)


@lowering("LeakyRelu")
def leaky_relu(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    need_float(inputs)
    slope = node.attr_float("alpha", 0.2)
    return scope.emit("LEAKY_RELU", inputs, scope.output_shape(node), alpha=slope)


@lowering("Selu")
def selu(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute scale * (max(x, 0) + alpha * elu(min(x, 0)))."""
    need_float(inputs)
    x, work = inputs[0], Arithmetic(scope)
    above = work.one("RELU", x)
    below = work.one("ELU", work.minimum(x, 0))
    return work.mul(work.add(above, work.mul(below, _SELU_ALPHA)), _SELU_SCALE)


@lowering("Softplus")
def softplus(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute max(x, 0) + log(1 + exp(-abs(x))), which does not overflow."""
    need_float(inputs)
    x, work = inputs[0], Arithmetic(scope)
    more = work.add(work.one("EXP", work.one("NEG", work.one("ABS", x))), 1)
    return work.add(work.one("RELU", x), work.one("LOG", more))


@lowering("Softsign")
def softsign(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute x / (1 + abs(x))."""
    need_float(inputs)
    x, work = inputs[0], Arithmetic(scope)
    return work.div(x, work.add(work.one("ABS", x), 1))


_BY_SIZE: Final = {"IsInf": "EQUAL", "IsFinite": "LESS"}


@lowering("Erfc")
def erfc(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute 1 - erf(x), with the precision of float32 around 1."""
    need_float(inputs)
    curve = scope.emit_plain("ERF", inputs[0], scope.output_shape(node))
    return Arithmetic(scope).sub(1, curve)


@lowering("ClipByValue")
def clip(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute max(min(x, high), low)."""
    need(inputs, LONG_NUMBERS)
    value, low, high = inputs
    work = Arithmetic(scope, value.dtype)
    return work.maximum(work.minimum(value, high), low)


@lowering("Tan")
def tan(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute sin(x) / cos(x)."""
    need_float(inputs)
    x, work = inputs[0], Arithmetic(scope)
    return work.div(work.one("SIN", x), work.one("COS", x))


@lowering("EuclideanNorm")
def euclidean_norm(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute sqrt(sum(x * x))."""
    need_float(inputs[:1])
    squares = Arithmetic(scope).one("SQUARE", inputs[0])
    axes = scope.integers_constant(scope.integers(node, 1, "axes"), "axes")
    keep_dims = node.attr_bool("keep_dims", False)
    total = scope.emit("SUM", [squares, axes], scope.output_shape(node), keep_dims=keep_dims)
    return Arithmetic(scope).one("SQRT", total)


@lowering("IsNan")
def is_nan(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute x != x."""
    need_float(inputs)
    return Arithmetic(scope).compare("NOT_EQUAL", inputs[0], inputs[0])


@lowering(*_BY_SIZE)
def by_size(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compare abs(x) with infinity: equal or less, both false for NaN."""
    need_float(inputs)
    work = Arithmetic(scope)
    return work.compare(_BY_SIZE[node.op], work.one("ABS", inputs[0]), np.inf)


@lowering("Mod", "TruncateMod")
def truncate_mod(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute x - trunc(x / y) * y for integers."""
    need(inputs, NUMBERS - {DType.FLOAT})
    (x, y), work = inputs, Arithmetic(scope, inputs[0].dtype)
    return work.sub(x, work.mul(work.div(x, y), y))


# Lanczos approximation of the gamma function with g = 7 and 9 coefficients (Godfrey). The first
# coefficient is the constant term.
_LANCZOS: Final = (
    *(0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313),
    *(-176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6),
    1.5056327351493116e-7,
)
_SHIFT: Final = 7.5
_LAST_BIT: Final = 31


@lowering("Lgamma")
def lgamma(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute log(abs(gamma(x))) with the Lanczos approximation, reflected for x < 0.5."""
    need_float(inputs)
    (x,) = inputs
    work = Arithmetic(scope)
    is_small = work.compare("LESS", x, 0.5)
    # z + 1 is x if that is at least 0.5, else 1 - x.
    z = work.select(is_small, work.one("NEG", x), work.add(x, -1.0))
    total = work.number(_LANCZOS[0])
    for i, coefficient in enumerate(_LANCZOS[1:], start=1):
        total = work.add(work.div(coefficient, work.add(z, float(i))), total)
    t = work.add(z, _SHIFT)
    power = work.mul(work.add(z, 0.5), work.one("LOG", t))
    gamma = work.add(
        work.add(work.sub(power, t), work.one("LOG", total)), math.log(2 * math.pi) / 2
    )
    # gamma(x) * gamma(1 - x) = pi / sin(pi * x). The distance to the nearest integer is exact.
    size = work.one("ABS", x)
    distance = work.one("ABS", work.sub(size, work.one("ROUND", size)))
    sine = work.one("SIN", work.mul(distance, math.pi))
    reflected = work.sub(work.sub(math.log(math.pi), work.one("LOG", sine)), gamma)
    return work.select(is_small, reflected, gamma)


# Taylor series of sinh(x) / x, asinh(x) / x, and atanh(x) / x as polynomials of x * x, highest
# power first.
_SINH: Final = (1 / 362880, 1 / 5040, 1 / 120, 1 / 6, 1.0)
_ARSINH: Final = (105 / 3456, -15 / 336, 3 / 40, -1 / 6, 1.0)
_ARTANH: Final = (1 / 9, 1 / 7, 1 / 5, 1 / 3, 1.0)
# For larger x, sqrt(x * x + 1) is x in float32, and x * x may overflow.
_LARGE: Final = 1e6


@lowering("Sinh", "Cosh")
def hyperbolic(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute (exp(x) - exp(-x)) / 2, by a polynomial around 0, or the sum for Cosh."""
    need_float(inputs)
    (x,) = inputs
    work = Arithmetic(scope)
    # Multiply by exp(x / 2) twice, because exp(x) overflows before exp(x) / 2 does.
    roots = [work.one("EXP", work.mul(x, share)) for share in (0.5, -0.5)]
    grown, shrunk = (work.mul(work.mul(root, 0.5), root) for root in roots)
    if node.op == "Cosh":
        return work.add(grown, shrunk)
    return _near_zero(work, x, _SINH, work.sub(grown, shrunk), edge=1.0)


@lowering("Asinh", "Acosh", "Atanh")
def inverse_hyperbolic(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute logarithms, with polynomials around 0, where logarithms lose precision."""
    need_float(inputs)
    (x,) = inputs
    work = Arithmetic(scope)
    if node.op == "Acosh":
        near = work.minimum(x, _LARGE)
        root = work.one("SQRT", work.mul(work.sub(near, 1.0), work.add(near, 1.0)))
        result = _arsinh(work, work.select(work.compare("LESS", x, _LARGE), root, x))
        not_a_number = scope.constant(np.float32(np.nan))
        return work.select(work.compare("LESS", x, 1.0), not_a_number, result)
    if node.op == "Asinh":
        size = work.one("ABS", x)
        return work.mul(work.one("SIGN", x), _arsinh(work, size))
    logarithms = [work.one("LOG", y) for y in (work.add(x, 1.0), work.sub(1.0, x))]
    far = work.mul(work.sub(*logarithms), 0.5)
    return _near_zero(work, x, _ARTANH, far)


def _arsinh(work: Arithmetic, x: Value) -> Value:
    """Compute asinh(x) for non-negative x."""
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
    """Compute x times a polynomial of x * x between -edge and edge; use another value elsewhere."""
    near = work.minimum(work.maximum(x, -edge), edge)
    square = work.mul(near, near)
    series: Value | float = coefficients[0]
    for coefficient in coefficients[1:]:
        series = work.add(work.mul(series, square), coefficient)
    is_near = work.compare("LESS", work.one("ABS", x), edge)
    return work.select(is_near, work.mul(near, series), otherwise)


@lowering("Asin", "Acos", "Atan")
def inverse_trigonometric(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit ATAN2 of the sides of a triangle."""
    need_float(inputs)
    (x,) = inputs
    work = Arithmetic(scope)
    if node.op == "Atan":
        zeros = scope.emit("ZEROS_LIKE", [x], x.shape)
        sides = [x, work.add(zeros, 1.0)]
    else:
        other = work.one("SQRT", work.mul(work.sub(1.0, x), work.add(x, 1.0)))
        sides = [x, other] if node.op == "Asin" else [other, x]
    return scope.emit("ATAN2", sides, x.shape, x.dtype)


@lowering("LeftShift")
def left_shift(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Multiply by a power of 2."""
    need(inputs, {DType.INT32})
    work = Arithmetic(scope, DType.INT32)
    exponents = scope.known_value(node, 1)
    if exponents is None:
        return work.mul(inputs[0], work.two("POW", 2, inputs[1]))
    factor = np.left_shift(1, np.clip(exponents, 0, _LAST_BIT)).astype(np.int32)
    return work.mul(inputs[0], scope.constant(factor))


@lowering("SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits")
def cross_entropy(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Compute sum(-labels * log_softmax(logits)) and softmax(logits) - labels."""
    need_float(inputs[:1])
    logits, labels = inputs
    work, shape = Arithmetic(scope), scope.output_shape(node, 1)
    if node.op.startswith("Sparse"):
        depth = scope.integers_constant(np.array(known_size(logits, 1)))
        marks = [scope.constant(np.float32(mark)) for mark in (1, 0)]
        operands = [labels, depth, *marks]
        labels = scope.emit("ONE_HOT", operands, shape, logits.dtype, axis=-1)
    probable = scope.emit("SOFTMAX", [logits], logits.shape, beta=1.0)
    logarithm = scope.emit("LOG_SOFTMAX", [logits], logits.shape)
    products = work.mul(labels, logarithm)
    values, loss = [products, scope.integers_constant([1], "axes")], scope.output_shape(node)
    total = scope.emit("SUM", values, loss, keep_dims=False)
    return work.one("NEG", total), work.sub(probable, labels)
