"""Replace groups of operators by a builtin that computes the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import Array
from mobileprep.litert.program import Op, Program, Readers, Value, builtin, number_of

# Relative tolerance for constants that the exporter rounded to float32.
_CLOSE: Final = 1e-6
# GELU (Hendrycks and Gimpel, 2016): x * cdf(x), and its approximation with tanh.
_OVER_ROOT_2: Final = 1 / math.sqrt(2)
_OF_TANH: Final = math.sqrt(2 / math.pi)
_OF_CUBE: Final = 0.044715
# Maximum nesting of products that are searched for the factors of an activation.
_DEEPEST: Final = 8
_RANGES: Final[Mapping[tuple[float | None, float | None], str]] = {
    (-1.0, 1.0): "RELU_N1_TO_1",
    (0.0, 6.0): "RELU6",
}


def gelu(op: Op, readers: Readers) -> Op | None:
    """Match x / 2 * (1 + erf(x / sqrt(2))), or the form with tanh, with products in any order.

    Because erf is odd, 1 - erf(-x / sqrt(2)) is equivalent; it is the lowered form of erfc.
    """
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
            return builtin("GELU", [x], op.outputs, approximate=curve.code == "TANH")
    return None


def between(op: Op, readers: Readers) -> Op | None:
    """Match min(max(x, low), high), in either order, if a builtin has that range."""
    value, limit = _with_number(op)
    codes = ("RELU", "MAXIMUM") if op.code == "MINIMUM" else ("MINIMUM",)
    inner = readers.maker(value, *codes)
    if limit is None or inner is None:
        return None
    x, bound = (inner.inputs[0], 0.0) if inner.code == "RELU" else _with_number(inner)
    code = _RANGES.get((bound, limit) if op.code == "MINIMUM" else (limit, bound))
    if code == "RELU6" and (before := readers.maker(x, "RELU")) is not None:
        x = before.inputs[0]  # Keras clips after the activation
    return None if code is None else builtin(code, [x], op.outputs)


def _with_number(op: Op) -> tuple[Value | None, float | None]:
    """Return the operands of an operator on a value and a number."""
    lhs, rhs = op.inputs
    if number_of(rhs) is not None:
        return lhs, number_of(rhs)
    return rhs, number_of(lhs)


def _is_erf(inner: Value | None, x: Value, sign: float, readers: Readers) -> bool:
    """Return whether a value is sign * x / sqrt(2)."""
    scale, factors = _factors_of(inner, readers)
    return factors == [x] and _is_close(scale, sign * _OVER_ROOT_2)


def _is_tanh(inner: Value | None, x: Value, sign: float, readers: Readers) -> bool:
    """Return whether a value is sign * sqrt(2 / pi) * (x + 0.044715 * x**3).

    A form with x factored out of the parentheses matches, too.
    """
    scale, factors = _factors_of(inner, readers)
    if not _is_close(scale, sign * _OF_TANH):
        return False
    if len(factors) == 1:
        total = readers.maker(factors[0], "ADD")
        return total is not None and any(
            first is x and _is_power(second, x, 3, readers)
            for first, second in (total.inputs, total.inputs[::-1])
        )
    others = [value for value in factors if value is not x]
    if len(factors) != 2 or len(others) != 1:
        return False
    return _is_power(_beside(others[0], 1.0, readers), x, 2, readers)


def _is_power(value: Value | None, x: Value, exponent: int, readers: Readers) -> bool:
    """Return whether a value is 0.044715 times a power of x."""
    scale, factors = _factors_of(value, readers)
    return factors == [x] * exponent and _is_close(scale, _OF_CUBE)


def _beside(value: Value | None, number: float, readers: Readers) -> Value | None:
    """Return the other operand of a sum with a number."""
    total = readers.maker(value, "ADD")
    rest, addend = (None, None) if total is None else _with_number(total)
    return rest if addend is not None and _is_close(addend, number) else None


def _subtrahend(value: Value | None, number: float, readers: Readers) -> Value | None:
    """Return the subtrahend of a difference whose minuend is a number."""
    difference = readers.maker(value, "SUB")
    if difference is None:
        return None
    minuend = number_of(difference.inputs[0])
    return difference.inputs[1] if minuend is not None and _is_close(minuend, number) else None


def _factors_of(value: Value | None, readers: Readers) -> tuple[float, list[Value]]:
    """Return the scale and the factors of a product; no factors if the value is not computed."""
    maker = readers.maker(value)
    return (1.0, []) if maker is None else _factors(maker, readers)


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


def with_builtins(program: Program) -> Program:
    """Replace every pattern in a program; operators that this leaves without readers stay."""
    for pattern, codes in _PATTERNS:
        readers = Readers(program)
        ops = []
        for op in program.ops:
            is_float = op.outputs and op.outputs[0].dtype is DType.FLOAT
            match = pattern(op, readers) if op.code in codes and is_float else None
            ops.append(op if match is None else replace(match, node=op.node))
        program = program.with_ops(ops)
    return program


def _hard_swish(op: Op, readers: Readers) -> Op | None:
    """Match x * relu6(x + 3) / 6, with products in any order."""
    for factors in _products(op, readers):
        numbers = [v for v in factors if number_of(v) is not None]
        others = [v for v in factors if number_of(v) is None]
        scale = float(np.prod([number_of(v) or 0.0 for v in numbers])) if numbers else 1.0
        if len(others) != 2 or abs(scale * 6 - 1) > _CLOSE:
            continue
        for x, clipped in (others, others[::-1]):
            if _shifted_by_3(clipped, readers) is x:
                return builtin("HARD_SWISH", [x], op.outputs)
    return None


def _products(op: Op, readers: Readers) -> Iterator[list[Value]]:
    """Yield the factors of a product, then those with one nested product expanded."""
    factors = list(op.operands)
    yield factors
    for index, value in enumerate(factors):
        inner = readers.maker(value, "MUL", "DIV")
        if inner is None or not readers.once(value):
            continue
        others = [*factors[:index], *factors[index + 1 :]]
        first, second = inner.operands
        if inner.code == "MUL":
            yield [*others, first, second]
        elif divisor := number_of(second):
            yield [*others, first, replace(second, data=np.array(1 / divisor, np.float32))]


def _shifted_by_3(value: Value, readers: Readers) -> Value | None:
    """Return the x of relu6(x + 3), or None."""
    clipped = readers.maker(value, "RELU6")
    total = None if clipped is None else readers.maker(clipped.inputs[0], "ADD")
    if total is None:
        return None
    for x, three in (total.inputs, total.inputs[::-1]):
        if number_of(three) == 3:
            return x
    return None


def _prelu(op: Op, readers: Readers) -> Op | None:
    """Match max(x, 0) - slope * max(-x, 0), which Keras and others export for PReLU."""
    pairs = [op.inputs] if op.code == "SUB" else [op.inputs, op.inputs[::-1]]
    for above, below in pairs:
        positive, scaled = readers.maker(above, "RELU"), readers.maker(below, "MUL")
        if positive is None or scaled is None:
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
    return builtin("PRELU", [x, slopes], op.outputs)


def _is_negative_part(value: Value | None, x: Value | None, readers: Readers) -> bool:
    """Return whether a value is max(-x, 0)."""
    clipped = readers.maker(value, "RELU")
    negated = None if clipped is None else readers.maker(clipped.inputs[0], "NEG")
    return negated is not None and negated.inputs[0] is x


def _l2_normalization(op: Op, readers: Readers) -> Op | None:
    """Match x * rsqrt(max(sum(x * x), epsilon)) along the last dimension."""
    for x, factor in (op.inputs, op.inputs[::-1]):
        root = readers.maker(factor, "RSQRT")
        largest = None if root is None else readers.maker(root.inputs[0], "MAXIMUM")
        if x is None or largest is None or not x.rank:
            continue
        least = [v for v in largest.inputs if (number_of(v) or 1.0) <= _CLOSE]
        rest = [v for v in largest.inputs if v not in least]
        total = readers.maker(rest[0], "SUM") if least and len(rest) == 1 else None
        if total is not None and _is_sum_of_squares(total, x, readers):
            return builtin("L2_NORMALIZATION", [x], op.outputs)
    return None


def _is_sum_of_squares(total: Op, x: Value, readers: Readers) -> bool:
    axes, rank = total.constant(1), x.rank or 1
    if not total.option("keep_dims") or axes is None:
        return False
    square = readers.maker(total.inputs[0], "MUL", "SQUARE")
    if [int(a) % rank for a in axes.reshape(-1)] != [rank - 1] or square is None:
        return False
    return square.inputs == ((x, x) if square.code == "MUL" else (x,))


def _padding_as_same(op: Op, readers: Readers) -> Op | None:
    """Fold a PAD into a convolution if it adds the same zeros as SAME padding."""
    before = readers.maker(op.inputs[0], "PAD") if op.option("padding") == "VALID" else None
    if before is None or not readers.once(before.outputs[0]):
        return None
    image, amounts, weights = before.inputs[0], before.constant(1), op.inputs[1]
    if image is None or amounts is None or weights is None:
        return None
    if image.rank != 4 or weights.shape is None or image.shape is None:
        return None
    expected = [(0, 0)]
    for axis, side in ((1, "h"), (2, "w")):
        stride = _whole(op, f"stride_{side}")
        dilation = _whole(op, f"dilation_{side}_factor")
        expected.append(_same(image.shape[axis], weights.shape[axis], stride, dilation))
    expected.append((0, 0))
    if [tuple(map(int, pair)) for pair in amounts] != expected:
        return None
    return replace(op.with_options(padding="SAME"), inputs=(image, *op.inputs[1:]))


def _whole(op: Op, name: str) -> int:
    """Return an integer option, or 1 by default."""
    value = op.option(name, 1)
    assert isinstance(value, int)
    return value


def _same(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Return the padding that SAME adds before and after, or (-1, -1) for an unknown size."""
    if size < 0:
        return (-1, -1)
    span = (kernel - 1) * dilation + 1
    total = max((-(-size // stride) - 1) * stride + span - size, 0)
    return (total // 2, total - total // 2)


# Each pattern, and the codes of the last operator of a match, which computes in float.
_PATTERNS: Final[tuple[tuple[Callable[[Op, Readers], Op | None], tuple[str, ...]], ...]] = (
    (between, ("MINIMUM", "MAXIMUM")),
    (gelu, ("MUL",)),
    (_hard_swish, ("MUL",)),
    (_prelu, ("ADD", "SUB")),
    (_l2_normalization, ("MUL",)),
    (_padding_as_same, ("CONV_2D", "DEPTHWISE_CONV_2D")),
)
