"""Requantization: 32-bit sums brought back to eight bits."""

from __future__ import annotations

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.fixed_point import to_quint8
from mobileprep.numerics.linear_quantization import Dequantizer, Quantizer
from mobileprep.numerics.quantization import Limits, steps_of, to_floats
from mobileprep.ops.common_costs import per_input, per_output
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.quantized.ranges import (
    Quantized,
    check_output,
    check_type,
    limits_of,
    number,
    two_scalars,
    unchanged_with_range,
)
from mobileprep.ops.shape_function import shape_fn

_INT8, _INT32 = np.dtype(np.int8), np.dtype(np.int32)


@kernel("Requantize")
def requantize(
    node: Node, x: Array, low: Array, high: Array, wanted_low: Array, wanted_high: Array
) -> Quantized:
    """Eight-bit numbers of a wanted range for 32-bit numbers of another.

    Raises:
        InvalidGraphError: the wanted range begins above zero, or ends before it begins.
    """
    check_type(node, "Tinput", x, DType.QINT32)
    dtype = check_output(node, "out_type", DType.QUINT8, DType.QINT8)
    limits, wanted = limits_of(low, high), limits_of(wanted_low, wanted_high)
    if not (wanted.low <= 0 and wanted.low <= wanted.high):
        message = f"node {node.name!r} is to give the range from {wanted.low} to {wanted.high}"
        raise InvalidGraphError(message, "a range begins at or below zero, and does not end before")
    ends = np.asarray(number(wanted_low)), np.asarray(number(wanted_high))
    if dtype is DType.QUINT8:
        return to_quint8(x, limits, wanted), *ends
    return Quantizer.of(wanted, _INT8)(Dequantizer.of(limits, _INT32)(x)), *ends


shape_fn("Requantize")(unchanged_with_range)
flop_rule("Requantize")(per_output(3))


@kernel("RequantizationRange")
def requantization_range(node: Node, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """The range that 32-bit numbers take up, and zero with it."""
    check_type(node, "Tinput", x, DType.QINT32)
    return _taken_up(x, limits_of(low, high)).outputs()


shape_fn("RequantizationRange")(two_scalars)
flop_rule("RequantizationRange")(per_input(2))


@kernel("QuantizeDownAndShrinkRange")
def quantize_down(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """Eight-bit numbers for 32-bit ones, and the range that those took up."""
    check_type(node, "Tinput", x, DType.QINT32)
    check_output(node, "out_type", DType.QUINT8)
    limits = limits_of(low, high)
    taken = _taken_up(x, limits)
    return to_quint8(x, limits, taken), *taken.outputs()


shape_fn("QuantizeDownAndShrinkRange")(unchanged_with_range)


@flop_rule("QuantizeDownAndShrinkRange")
def shrink_range_flops(sizes: Sizes) -> float:
    """Two extremes, and a requantization."""
    return 5 * sizes.taken()


def _taken_up(x: Array, limits: Limits) -> Limits:
    steps = steps_of(_INT32)
    # Of no numbers, the smallest is the highest there is, and the largest the lowest.
    found = np.array([x.min(initial=steps.highest), x.max(initial=steps.lowest)], dtype=np.int32)
    low, high = to_floats(found, limits)
    return Limits(np.float32(low if low < 0 else 0), np.float32(high))
