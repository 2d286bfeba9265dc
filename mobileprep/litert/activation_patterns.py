"""Activations that graphs spell out: GELU, and ranges between two numbers."""

from __future__ import annotations

import math
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options
from mobileprep.litert.program import Op, Readers, Value, number_of

# Rounded to float32 by whoever wrote the graph, in one way or another.
_CLOSE: Final = 1e-6
# Hendrycks and Gimpel, 2016: x * cdf(x), and its approximation by a hyperbolic tangent.
_OVER_ROOT_2: Final = 1 / math.sqrt(2)
_OF_TANH: Final = math.sqrt(2 / math.pi)
_OF_CUBE: Final = 0.044715
# Products within products that an activation may be made of, in any order.
_DEEPEST: Final = 8
_RANGES: Final = {(-1.0, 1.0): "RELU_N1_TO_1", (0.0, 6.0): "RELU6"}


def gelu(op: Op, readers: Readers) -> Op | None:
    """x / 2 * (1 + erf(x / sqrt(2))), or the same with tanh, in any order of its products.

    As erf is odd, 1 - erf(-x / sqrt(2)) is the same, which erfc becomes.
    """
    if op.code != "MUL" or op.outputs[0].dtype is not DType.FLOAT:
        return None
    scale, factors = _factors(op, readers)
    if len(factors) != 2 or not _is_close(scale, 0.5):
        return None
    for x, bend in (factors, factors[::-1]):
        curve, sign = readers.maker(_beside(bend, 1.0, readers)), 1.0
        if curve is None:
            curve, sign = readers.maker(_taken_from(bend, 1.0, readers)), -1.0
        if curve is None or curve.code not in ("ERF", "TANH"):
            continue
        is_curve = _is_erf if curve.code == "ERF" else _is_tanh
        if is_curve(curve.inputs[0], x, sign, readers):
            options = Options("GeluOptions", {"approximate": curve.code == "TANH"})
            return Op("GELU", (x,), op.outputs, options)
    return None


def between(op: Op, readers: Readers) -> Op | None:
    """min(max(x, low), high), in either order, where a builtin has that range."""
    if op.code not in ("MINIMUM", "MAXIMUM") or op.outputs[0].dtype is not DType.FLOAT:
        return None
    value, limit = _with_number(op)
    inner = readers.maker(value)
    if limit is None or inner is None:
        return None
    if inner.code == "RELU":
        x, other = inner.inputs[0], 0.0
    elif inner.code in ("MINIMUM", "MAXIMUM"):
        x, found = _with_number(inner)
        if found is None:
            return None
        other = found
    else:
        return None
    if inner.code == op.code or (inner.code == "RELU" and op.code == "MAXIMUM"):
        return None
    low, high = (other, limit) if op.code == "MINIMUM" else (limit, other)
    code = _RANGES.get((low, high))
    return None if code is None else Op(code, (x,), op.outputs)


def _with_number(op: Op) -> tuple[Value | None, float | None]:
    """The value that an operator on two compares with a number, and the number."""
    left, right = op.inputs
    if number_of(right) is not None:
        return left, number_of(right)
    return right, number_of(left)


def _is_erf(inner: Value | None, x: Value, sign: float, readers: Readers) -> bool:
    """Whether a value is x / sqrt(2), of the sign given."""
    maker = readers.maker(inner)
    if maker is None:
        return False
    scale, factors = _factors(maker, readers)
    return factors == [x] and _is_close(scale, sign * _OVER_ROOT_2)


def _is_tanh(inner: Value | None, x: Value, sign: float, readers: Readers) -> bool:
    """Whether a value is sqrt(2 / pi) * (x + 0.044715 * x**3), or has x before the brackets.

    It may be of either sign; the one that is meant is given.
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
    """Whether a value is 0.044715 times a power of x."""
    maker = readers.maker(value)
    if maker is None:
        return False
    scale, factors = _factors(maker, readers)
    return factors == [x] * exponent and _is_close(scale, _OF_CUBE)


def _beside(value: Value | None, wanted: float, readers: Readers) -> Value | None:
    """What a number is added to."""
    total = readers.maker(value)
    if total is None or total.code != "ADD":
        return None
    rest, found = _with_number(total)
    return rest if found is not None and _is_close(found, wanted) else None


def _taken_from(value: Value | None, wanted: float, readers: Readers) -> Value | None:
    """What is taken from a number."""
    difference = readers.maker(value)
    if difference is None or difference.code != "SUB":
        return None
    found = number_of(difference.inputs[0])
    return difference.inputs[1] if found is not None and _is_close(found, wanted) else None


def _factors(op: Op, readers: Readers, depth: int = 0) -> tuple[float, list[Value]]:
    """The number and the values of a product, those of products and powers in it included.

    Products of many others are no part of an activation, and are left as they are.
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
            inner, found = _factors(maker, readers, depth + 1)
            scale *= inner
            values += found
        else:
            values.append(value)
    return scale, values


def _exponent(op: Op) -> int | None:
    """The whole power that an operator takes its first input to."""
    if op.code == "SQUARE":
        return 2
    number = number_of(op.inputs[1]) if op.code == "POW" else None
    return int(number) if number in (2.0, 3.0) else None


def _is_close(found: float, wanted: float) -> bool:
    return abs(found - wanted) <= _CLOSE * abs(wanted)
