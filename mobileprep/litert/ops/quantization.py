"""Ops that simulate quantization."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.litert.arithmetic import Arithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import reshaped
from mobileprep.litert.types import need_float


@lowering("FakeQuantWithMinMaxVars", "FakeQuantWithMinMaxArgs")
def fake_quant(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """FAKE_QUANT, whose range is part of the file."""
    need_float(node, inputs[:1])
    if node.op == "FakeQuantWithMinMaxVars":
        low, high = (float(scope.needed(node, i, "range").reshape(())) for i in (1, 2))
    else:
        low, high = node.attr_float("min", -6.0), node.attr_float("max", 6.0)
    return scope.emit(
        "FAKE_QUANT",
        inputs[:1],
        scope.output_shape(node),
        inputs[0].dtype,
        "FakeQuantOptions",
        min=low,
        max=high,
        num_bits=node.attr_int("num_bits", 8),
        narrow_range=node.attr_bool("narrow_range", False),
    )


@lowering("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def round_trip(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Numbers rounded to the steps of an integer type, by a product before and after ROUND."""
    need_float(node, inputs[:3])
    x, work = inputs[0], Arithmetic(scope)
    is_given, axis = node.attr_bool("range_given", False), node.attr_int("axis", -1)
    if x.rank is None:
        reason = "the rank of its input is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    if is_given:
        line = (1,) * x.rank if axis == -1 else tuple(-1 if i == axis else 1 for i in range(x.rank))
        low, high = (reshaped(scope, end, line) for end in inputs[1:3])
    elif x.rank:
        others = [i for i in range(x.rank) if i != axis]
        low, high = (work.reduce(code, x, *others) for code in ("REDUCE_MIN", "REDUCE_MAX"))
    else:
        low = high = x
    least, most = _steps(scope, node)
    limit = float(np.finfo(np.float32).max)
    inverse = work.div(high, most)
    scale = work.select(work.compare("GREATER", high, 0.0), work.div(most, high), limit)
    if least:
        # The side with the larger steps decides.
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
    """The lowest and the highest integer."""
    if node.op == "QuantizeAndDequantizeV3":
        (bits,) = scope.integers(node, 3, "number of bits")
    else:
        bits = node.attr_int("num_bits", 8)
    if not node.attr_bool("signed_input", True):
        return 0.0, float((1 << bits) - 1)
    half = 1 << (bits - 1)
    return float(node.attr_bool("narrow_range", False) - half), float(half - 1)
