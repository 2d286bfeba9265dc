"""Random numbers and fake quantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.litert.arithmetic import Arithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import as_int32, known_shape, reshaped
from mobileprep.litert.types import need_float

_MOST_INTEGERS: Final = 1 << 24


# For each op: its builtin, and the fix for other types than float32.
_DRAWS: Final = {
    "RandomUniform": ("RANDOM_UNIFORM", "leave dropout out: remove_dropout, or choose_inference"),
    "RandomStandardNormal": ("RANDOM_STANDARD_NORMAL", "draw float32, and cast it"),
}


@lowering(*_DRAWS)
def draw(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit the builtin: the distribution is TensorFlow's, but the numbers differ."""
    code, hint = _DRAWS[node.op]
    kind = node.attr_dtype("dtype")
    if kind is not DType.FLOAT:
        reason = f"LiteRT draws float32, not {kind.short}"
        raise CannotExpressError(reason, hint)
    return _drawn(scope, node, code, inputs[0])


@lowering("RandomUniformInt")
def random_integers(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Scale RANDOM_UNIFORM to a range of at most 2**24 integers, and truncate."""
    low, high = (int(scope.needed(node, i, "range").reshape(())) for i in (1, 2))
    if not max(abs(low), abs(high)) <= _MOST_INTEGERS:
        reason = f"it draws from {low} to {high}, and LiteRT draws float32, exact up to 2**24"
        raise CannotExpressError(reason, "draw from a smaller range, or feed the numbers")
    work = Arithmetic(scope)
    drawn = work.mul(_drawn(scope, node, "RANDOM_UNIFORM", inputs[0]), high - low)
    # A product that is rounded up to the range's size would be out of range.
    whole = work.minimum(work.one("FLOOR", drawn), high - low - 1)
    return work.cast(work.add(whole, low), node.attr_dtype("Tout", inputs[1].dtype))


@lowering("Multinomial")
def multinomial(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit MULTINOMIAL: the distribution is TensorFlow's, but the classes differ."""
    need_float(inputs[:1])
    kind, shape = node.attr_dtype("output_dtype", DType.INT64), scope.output_shape(node)
    values = [inputs[0], as_int32(scope, node, 1, inputs[1])]
    return scope.emit("MULTINOMIAL", values, shape, kind, **_seeds(node))


def _drawn(scope: Scope, node: Node, code: str, sizes: Value) -> Value:
    operands, shape = [as_int32(scope, node, 0, sizes)], scope.output_shape(node)
    return scope.emit(code, operands, shape, DType.FLOAT, **_seeds(node))


def _seeds(node: Node) -> dict[str, int]:
    return {name: node.attr_int(name, 0) for name in ("seed", "seed2")}


@lowering("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxArgs")
def fake_quant(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit FAKE_QUANT with a constant range."""
    need_float(inputs[:1])
    if node.op == "FakeQuantWithMinMaxVars":
        low, high = (float(scope.needed(node, i, "range").reshape(())) for i in (1, 2))
    else:
        low, high = node.attr_float("min", -6.0), node.attr_float("max", 6.0)
    return scope.emit(
        "FAKE_QUANT",
        inputs[:1],
        scope.output_shape(node),
        min=low,
        max=high,
        num_bits=node.attr_int("num_bits", 8),
        narrow_range=node.attr_bool("narrow_range", False),
    )


@lowering("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def round_trip(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Round to an integer grid: multiply, ROUND, and multiply by the inverse."""
    need_float(inputs[:3])
    x, work = inputs[0], Arithmetic(scope)
    is_given, axis = node.attr_bool("range_given", False), node.attr_int("axis", -1)
    rank = len(known_shape(x))
    if is_given:
        line = (1,) * rank if axis == -1 else tuple(-1 if i == axis else 1 for i in range(rank))
        low, high = (reshaped(scope, end, line) for end in inputs[1:3])
    elif rank:
        others = [i for i in range(rank) if i != axis]
        low, high = (work.reduce(code, x, *others) for code in ("REDUCE_MIN", "REDUCE_MAX"))
    else:
        low = high = x
    least, most = _steps(scope, node)
    limit = float(np.finfo(np.float32).max)
    inverse = work.div(high, most)
    scale = work.select(work.compare("GREATER", high, 0.0), work.div(most, high), limit)
    if least:
        # The end of the range that needs the larger steps determines the scale.
        below = work.select(work.compare("LESS", low, 0.0), work.div(least, low), limit)
        by_low = work.compare("LESS", below, scale)
        inverse = work.select(by_low, work.div(low, least), inverse)
        scale = work.select(by_low, below, scale)
        low, high = (
            work.select(by_low, low, work.mul(inverse, least)),
            work.select(by_low, work.mul(inverse, most), high),
        )
    else:
        low = work.mul(inverse, 0.0)
    if is_given:
        x = work.maximum(work.minimum(x, high), low)
    scaled = work.mul(x, scale)
    is_up = node.attr_str("round_mode", "HALF_TO_EVEN") == "HALF_UP"
    rounded = work.one("FLOOR", work.add(scaled, 0.5)) if is_up else work.one("ROUND", scaled)
    return work.mul(rounded, inverse)


def _steps(scope: Scope, node: Node) -> tuple[float, float]:
    """Return the smallest and largest integer."""
    if node.op == "QuantizeAndDequantizeV3":
        (bits,) = scope.integers(node, 3, "number of bits")
    else:
        bits = node.attr_int("num_bits", 8)
    if not node.attr_bool("signed_input", True):
        return 0.0, float((1 << bits) - 1)
    half = 1 << (bits - 1)
    return float(node.attr_bool("narrow_range", False) - half), float(half - 1)
