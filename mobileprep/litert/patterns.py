"""Replace groups of operators by a builtin that computes the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options
from mobileprep.graph.tensor import Array
from mobileprep.litert.program import Op, Program, Readers, Value, number_of

# Relative tolerance for constants that the exporter rounded to float32.
_CLOSE: Final = 1e-6
# GELU (Hendrycks and Gimpel, 2016): x * cdf(x), and its approximation with tanh.
_OVER_ROOT_2: Final = 1 / math.sqrt(2)
_OF_TANH: Final = math.sqrt(2 / math.pi)
_OF_CUBE: Final = 0.044715
# Maximum nesting of products that are searched for the factors of an activation.
_DEEPEST: Final = 8
_RANGES: Final = {(-1.0, 1.0): "RELU_N1_TO_1", (0.0, 6.0): "RELU6"}


def gelu(op: Op, readers: Readers) -> Op | None:
    """Match x / 2 * (1 + erf(x / sqrt(2))), or the form with tanh, with products in any order.

    Because erf is odd, 1 - erf(-x / sqrt(2)) is equivalent; it is the lowered form of erfc.
    """
    if op.code != "MUL" or op.outputs[0].dtype is not DType.FLOAT:
        return None
    scale, factors = _factors(op, readers)
    if len(factors) != 2 or not _is_close(scale, 0.5):
        return None
    for x, bend in (factors, factors[::-1]):
        curve, sign = readers.maker(_beside(bend, 1.0, readers)), 1.0
        if curve is None:
            curve, sign = readers.maker(_subtrahend(bend, 1.0, readers)), -1.0
        if curve is None or curve.code not in ("ERF", "TANH"):
            continue
        is_curve = _is_erf if curve.code == "ERF" else _is_tanh
        if is_curve(curve.inputs[0], x, sign, readers):
            options = Options("GeluOptions", {"approximate": curve.code == "TANH"})
            return Op("GELU", (x,), op.outputs, options)
    return None


def between(op: Op, readers: Readers) -> Op | None:
    """Match min(max(x, low), high), in either order, if a builtin has that range."""
    if op.code not in ("MINIMUM", "MAXIMUM") or op.outputs[0].dtype is not DType.FLOAT:
        return None
    value, limit = _with_number(op)
    inner = readers.maker(value)
    if limit is None or inner is None:
        return None
    if inner.code == "RELU":
        x, other = inner.inputs[0], 0.0
    elif inner.code in ("MINIMUM", "MAXIMUM"):
        x, bound = _with_number(inner)
        if bound is None:
            return None
        other = bound
    else:
        return None
    if inner.code == op.code or (inner.code == "RELU" and op.code == "MAXIMUM"):
        return None
    low, high = (other, limit) if op.code == "MINIMUM" else (limit, other)
    code = _RANGES.get((low, high))
    return None if code is None else Op(code, (x,), op.outputs)


def _with_number(op: Op) -> tuple[Value | None, float | None]:
    """Return the operands of an operator on a value and a number."""
    left, right = op.inputs
    if number_of(right) is not None:
        return left, number_of(right)
    return right, number_of(left)


def _is_erf(inner: Value | None, x: Value, sign: float, readers: Readers) -> bool:
    """Return whether a value is sign * x / sqrt(2)."""
    maker = readers.maker(inner)
    if maker is None:
        return False
    scale, factors = _factors(maker, readers)
    return factors == [x] and _is_close(scale, sign * _OVER_ROOT_2)


def _is_tanh(inner: Value | None, x: Value, sign: float, readers: Readers) -> bool:
    """Return whether a value is sign * sqrt(2 / pi) * (x + 0.044715 * x**3).

    A form with x factored out of the parentheses matches, too.
    """
    maker = readers.maker(inner)
    if maker is None:
        return False
    scale, factors = _factors(maker, readers)
    if not _is_close(scale, sign * _OF_TANH):
        return False
    if len(factors) == 1:
        total = readers.maker(factors[0])
        if total is None or total.code != "ADD":
            return False
        left, right = total.inputs
        return any(
            first is x and _is_power(second, x, 3, readers)
            for first, second in ((left, right), (right, left))
        )
    others = [value for value in factors if value is not x]
    if len(factors) != 2 or len(others) != 1:
        return False
    return _is_power(_beside(others[0], 1.0, readers), x, 2, readers)


def _is_power(value: Value | None, x: Value, exponent: int, readers: Readers) -> bool:
    """Return whether a value is 0.044715 times a power of x."""
    maker = readers.maker(value)
    if maker is None:
        return False
    scale, factors = _factors(maker, readers)
    return factors == [x] * exponent and _is_close(scale, _OF_CUBE)


def _beside(value: Value | None, number: float, readers: Readers) -> Value | None:
    """Return the other operand of a sum with a number."""
    total = readers.maker(value)
    if total is None or total.code != "ADD":
        return None
    rest, addend = _with_number(total)
    return rest if addend is not None and _is_close(addend, number) else None


def _subtrahend(value: Value | None, number: float, readers: Readers) -> Value | None:
    """Return the subtrahend of a difference whose minuend is a number."""
    difference = readers.maker(value)
    if difference is None or difference.code != "SUB":
        return None
    minuend = number_of(difference.inputs[0])
    return difference.inputs[1] if minuend is not None and _is_close(minuend, number) else None


def _factors(op: Op, readers: Readers, depth: int = 0) -> tuple[float, list[Value]]:
    """Return the scale and the factors of a product, including nested products and powers.

    Nested products with several readers are treated as one factor.
    """
    first, *rest = op.inputs
    power = _exponent(op)
    if power is not None and first is not None:
        return 1.0, [first] * power
    divisor = number_of(rest[0]) if op.code == "DIV" and rest else None
    if op.code not in ("MUL", "DIV", "NEG") or (op.code == "DIV" and not divisor):
        return 1.0, [op.outputs[0]]
    scale = -1.0 if op.code == "NEG" else 1.0 if divisor is None else 1 / divisor
    values: list[Value] = []
    for value in op.inputs if divisor is None else [first]:
        if value is None:
            continue
        number, maker = number_of(value), readers.maker(value)
        if number is not None:
            scale *= number
        elif maker is not None and depth < _DEEPEST and readers.once(value):
            inner, inner_values = _factors(maker, readers, depth + 1)
            scale *= inner
            values += inner_values
        else:
            values.append(value)
    return scale, values


def _exponent(op: Op) -> int | None:
    """Return the integer exponent of a power, or None."""
    if op.code == "SQUARE":
        return 2
    number = number_of(op.inputs[1]) if op.code == "POW" else None
    return int(number) if number in (2.0, 3.0) else None


def _is_close(actual: float, expected: float) -> bool:
    return abs(actual - expected) <= _CLOSE * abs(expected)


_STRIDED: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})
_SAME: Final = "SAME"


def with_builtins(program: Program) -> Program:
    """Replace every pattern in a program; operators that this leaves without readers stay."""
    for pattern in _PATTERNS:
        readers = Readers(program)
        replacements = ((op, pattern(op, readers)) for op in program.ops)
        ops = [
            op if builtin is None else replace(builtin, node=op.node)
            for op, builtin in replacements
        ]
        program = program.with_ops(ops)
    return program


def _hard_swish(op: Op, readers: Readers) -> Op | None:
    """Match x * relu6(x + 3) / 6, with products in any order."""
    if op.code != "MUL" or op.outputs[0].dtype is not DType.FLOAT:
        return None
    for factors in _products(op, readers):
        numbers = [v for v in factors if number_of(v) is not None]
        others = [v for v in factors if number_of(v) is None]
        scale = float(np.prod([number_of(v) or 0.0 for v in numbers])) if numbers else 1.0
        if len(others) != 2 or abs(scale * 6 - 1) > _CLOSE:
            continue
        for x, clipped in (others, others[::-1]):
            if _shifted_by_3(clipped, readers) is x:
                return Op("HARD_SWISH", (x,), op.outputs, Options("HardSwishOptions"))
    return None


def _products(op: Op, readers: Readers) -> Iterator[list[Value]]:
    """Yield the factors of a product, then those with one nested product expanded."""
    factors = [value for value in op.inputs if value is not None]
    yield factors
    for index, value in enumerate(factors):
        inner = readers.maker(value)
        if inner is not None and inner.code == "MUL" and readers.once(value):
            yield [
                *factors[:index],
                *factors[index + 1 :],
                *(v for v in inner.inputs if v is not None),
            ]
        if inner is not None and inner.code == "DIV" and readers.once(value):
            over, under = inner.inputs
            divisor = number_of(under)
            if over is not None and under is not None and divisor:
                inverse = replace(under, data=np.array(1 / divisor, np.float32))
                yield [*factors[:index], *factors[index + 1 :], over, inverse]


def _shifted_by_3(value: Value, readers: Readers) -> Value | None:
    """Return the x of relu6(x + 3), or None."""
    clipped = readers.maker(value)
    if clipped is None or clipped.code != "RELU6":
        return None
    total = readers.maker(clipped.inputs[0])
    if total is None or total.code != "ADD":
        return None
    for x, three in (total.inputs, total.inputs[::-1]):
        if number_of(three) == 3:
            return x
    return None


def _prelu(op: Op, readers: Readers) -> Op | None:
    """Match max(x, 0) - slope * max(-x, 0), which Keras and others export for PReLU."""
    if op.code not in ("ADD", "SUB") or op.outputs[0].dtype is not DType.FLOAT:
        return None
    pairs = [op.inputs] if op.code == "SUB" else [op.inputs, op.inputs[::-1]]
    for above, below in pairs:
        positive, scaled = readers.maker(above), readers.maker(below)
        if positive is None or scaled is None or (positive.code, scaled.code) != ("RELU", "MUL"):
            continue
        x = positive.inputs[0]
        for slope, part in (scaled.inputs, scaled.inputs[::-1]):
            if slope is None or slope.data is None or not _is_negative_part(part, x, readers):
                continue
            sign = -1 if op.code == "ADD" else 1
            return _prelu_op(op, x, slope, sign * slope.data)
    return None


def _prelu_op(op: Op, x: Value | None, slope: Value, values: Array) -> Op | None:
    if x is None or x.rank is None or values.ndim > x.rank or x.rank < 2:
        return None
    # One slope per element of a sample; the runtime broadcasts slopes along sizes of 1.
    if values.ndim == x.rank and values.shape[0] == 1:
        values = values[0]
    shaped = values.reshape((1,) * max(x.rank - 1 - values.ndim, 0) + values.shape)
    if shaped.ndim != x.rank - 1:
        return None
    data = np.ascontiguousarray(shaped, np.float32)
    slopes = Value(f"{slope.name}_slope", DType.FLOAT, data.shape, data)
    return Op("PRELU", (x, slopes), op.outputs)


def _is_negative_part(value: Value | None, x: Value | None, readers: Readers) -> bool:
    """Return whether a value is max(-x, 0)."""
    clipped = readers.maker(value)
    if clipped is None or clipped.code != "RELU":
        return False
    negated = readers.maker(clipped.inputs[0])
    return negated is not None and negated.code == "NEG" and negated.inputs[0] is x


def _l2_normalization(op: Op, readers: Readers) -> Op | None:
    """Match x * rsqrt(max(sum(x * x), epsilon)) along the last dimension."""
    if op.code != "MUL" or op.outputs[0].dtype is not DType.FLOAT:
        return None
    for x, factor in (op.inputs, op.inputs[::-1]):
        root = readers.maker(factor)
        if x is None or root is None or root.code != "RSQRT" or not x.rank:
            continue
        total = readers.maker(root.inputs[0])
        if total is not None and total.code == "MAXIMUM":
            least = [v for v in total.inputs if (number_of(v) or 1.0) <= _CLOSE]
            rest = [v for v in total.inputs if v not in least]
            total = readers.maker(rest[0]) if least and len(rest) == 1 else None
            if total is not None and _is_sum_of_squares(total, x, readers):
                return Op("L2_NORMALIZATION", (x,), op.outputs, Options("L2NormOptions"))
    return None


def _is_sum_of_squares(total: Op, x: Value, readers: Readers) -> bool:
    squares, axes = total.inputs[:2] if len(total.inputs) > 1 else (None, None)
    keeps_dims = total.options is not None and bool(total.options.values.get("keep_dims", False))
    if total.code != "SUM" or not keeps_dims or axes is None or axes.data is None:
        return False
    if [int(a) % (x.rank or 1) for a in axes.data.reshape(-1)] != [(x.rank or 1) - 1]:
        return False
    square = readers.maker(squares)
    if square is None:
        return False
    if square.code == "MUL":
        return square.inputs == (x, x)
    return square.code == "SQUARE" and square.inputs[0] is x


def _padding_as_same(op: Op, readers: Readers) -> Op | None:
    """Fold a PAD into a convolution if it adds the same zeros as SAME padding."""
    options = op.options
    if op.code not in _STRIDED or options is None or options.values.get("padding") != "VALID":
        return None
    before = readers.maker(op.inputs[0])
    if before is None or before.code != "PAD" or not readers.once(before.outputs[0]):
        return None
    image, amounts = before.inputs[:2]
    weights = op.inputs[1]
    if image is None or amounts is None or amounts.data is None or weights is None:
        return None
    if image.rank != 4 or weights.shape is None or image.shape is None:
        return None
    expected = [(0, 0)]
    for axis, side in ((1, "h"), (2, "w")):
        stride = _whole(options, f"stride_{side}")
        dilation = _whole(options, f"dilation_{side}_factor")
        expected.append(_same(image.shape[axis], weights.shape[axis], stride, dilation))
    expected.append((0, 0))
    if [tuple(map(int, pair)) for pair in amounts.data] != expected:
        return None
    values = {**options.values, "padding": _SAME}
    inputs = (image, *op.inputs[1:])
    return replace(op, inputs=inputs, options=replace(options, values=values))


def _whole(options: Options, name: str) -> int:
    """Return an integer option, or 1 by default."""
    value = options.values.get(name, 1)
    assert isinstance(value, int)
    return value


def _same(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the padding that SAME adds before and after, or (-1, -1) for an unknown size."""
    if size < 0:
        return (-1, -1)
    span = (kernel - 1) * dilation + 1
    total = max((-(-size // stride) - 1) * stride + span - size, 0)
    return (total // 2, total - total // 2)


_PATTERNS: Final[tuple[Callable[[Op, Readers], Op | None], ...]] = (
    between,
    gelu,
    _hard_swish,
    _prelu,
    _l2_normalization,
    _padding_as_same,
)
