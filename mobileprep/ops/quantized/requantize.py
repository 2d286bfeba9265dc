"""Requantization to 8 bits, per tensor and per channel.

Source of the latter: ``mkl_requantize_per_channel_op.cc`` and
``mkl_requantization_range_per_channel_op.cc`` of TensorFlow 2.
"""

from __future__ import annotations

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.cost import per_input, per_output
from mobileprep.ops.kernel import kernel
from mobileprep.ops.numerics.integer_products import to_quint8
from mobileprep.ops.numerics.quantization import (
    Dequantizer,
    Limits,
    Quantizer,
    flushed,
    steps_of,
    through_int32,
    to_floats,
)
from mobileprep.ops.quantized.ranges import (
    Quantized,
    check_output,
    check_type,
    limits_of,
    number,
    unchanged_with_range,
)
from mobileprep.ops.shape_function import fixed

_INT8, _INT32 = np.dtype(np.int8), np.dtype(np.int32)


@kernel("Requantize", shape=unchanged_with_range, flops=per_output(3))
def requantize(
    node: Node, x: Array, low: Array, high: Array, target_low: Array, target_high: Array
) -> Quantized:
    """Requantize 32-bit numbers of one range to 8-bit numbers of another."""
    check_type(node, "Tinput", x, DType.QINT32)
    dtype = check_output(node, "out_type", DType.QUINT8, DType.QINT8)
    limits, target = limits_of(low, high), limits_of(target_low, target_high)
    if not (target.low <= 0 and target.low <= target.high):
        message = f"node {node.name!r} is to give the range from {target.low} to {target.high}"
        raise InvalidGraphError(message, "a range begins at or below zero, and does not end before")
    ends = np.asarray(number(target_low)), np.asarray(number(target_high))
    if dtype is DType.QUINT8:
        return to_quint8(x, limits, target), *ends
    return Quantizer.of(target, _INT8)(Dequantizer.of(limits, _INT32)(x)), *ends


@kernel("RequantizationRange", shape=fixed((), ()), flops=per_input(2))
def requantization_range(node: Node, x: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the range that 32-bit numbers cover, including zero."""
    check_type(node, "Tinput", x, DType.QINT32)
    return _covered_range(x, limits_of(low, high)).outputs()


# Two extremes, and a requantization.
@kernel("QuantizeDownAndShrinkRange", shape=unchanged_with_range, flops=per_input(5))
def quantize_down(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """Requantize 32-bit numbers to 8-bit ones with the range that they cover."""
    check_type(node, "Tinput", x, DType.QINT32)
    check_output(node, "out_type", DType.QUINT8)
    limits = limits_of(low, high)
    target = _covered_range(x, limits)
    return to_quint8(x, limits, target), *target.outputs()


def _covered_range(x: Array, limits: Limits) -> Limits:
    steps = steps_of(_INT32)
    # Without numbers, the minimum is the highest one, and the maximum the lowest one.
    ends = np.array([x.min(initial=steps.highest), x.max(initial=steps.lowest)], dtype=np.int32)
    low, high = to_floats(ends, limits)
    return Limits(np.float32(low if low < 0 else 0), np.float32(high))


# One more than the highest 32-bit number, the value of the upper end of the range.
_TOP = np.float32(1 << 31)
_HIGHEST = {DType.QINT8: np.float32(127), DType.QUINT8: np.float32(255)}


@kernel("RequantizationRangePerChannel", shape=fixed((), ()), flops=per_input(2))
def requantization_range_per_channel(
    node: Node, x: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """Return the symmetric range that numbers cover; it starts at zero if none is negative.

    Args:
        node: with clip_value_max, the limit of the range.
        x: int32 [batch, height, width, channels].
    """
    check_type(node, "T", x, DType.QINT32)
    if x.ndim != 4 or not x.size or not low.shape == high.shape == x.shape[3:]:
        message = f"ranges of shapes {list(low.shape)} and {list(high.shape)} for {list(x.shape)}"
        raise ValueError(message)
    least, most = (through_int32(f(x, axis=(0, 1, 2))) for f in (np.min, np.max))
    largest = np.maximum(np.abs(least), np.abs(most))
    # The lowest 32-bit number cannot be negated: channels that contain it are ignored.
    reached = np.where(largest < _TOP, _magnitude(low, high) * largest / _TOP, np.float32(0))
    top = max(np.finfo(np.float32).tiny, np.fmax.reduce(reached))
    top = np.float32(min(top, np.float32(node.attr_float("clip_value_max"))))
    bottom = -top if least.min() < 0 else np.float32(0)
    return np.asarray(bottom), np.asarray(top)


@kernel("RequantizePerChannel", shape=unchanged_with_range, flops=per_output(3))
def requantize_per_channel(
    node: Node, x: Array, low: Array, high: Array, target_low: Array, target_high: Array
) -> Quantized:
    """Requantize 32-bit numbers to 8-bit numbers of one range, with zero point 0."""
    check_type(node, "T", x, DType.QINT32)
    dtype = check_output(node, "out_type", DType.QUINT8, DType.QINT8)
    if x.ndim not in (4, 5) or low.size != high.size or low.size not in (1, x.shape[-1]):
        message = f"ranges of shapes {list(low.shape)} and {list(high.shape)} for {list(x.shape)}"
        raise ValueError(message)
    begin, end = number(flushed(target_low)), number(flushed(target_high))
    if dtype is DType.QINT8 and not begin < 0:
        message = f"node {node.name!r} is to give signed numbers from {begin}"
        raise InvalidGraphError(message, "ask for a range that begins below zero, or for quint8")
    kind = dtype.numpy
    assert kind is not None
    info = np.iinfo(kind)
    out = x.astype(np.float32)
    largest = max(abs(begin), abs(end))
    out *= _HIGHEST[dtype] * (_magnitude(low, high).reshape(-1) / largest / _TOP)
    np.rint(np.clip(out, info.min, info.max, out=out), out=out)
    values = np.where(np.isnan(out), np.float32(0), out).astype(kind)
    return values, np.asarray(number(target_low)), np.asarray(number(target_high))


def _magnitude(low: Array, high: Array) -> Array:
    return np.maximum(np.abs(flushed(low)), np.abs(flushed(high)))
