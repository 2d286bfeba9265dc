"""Quantization, dequantization, requantization, and simulated quantization."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.slicing import along_axis, sliced_axis
from mobileprep.ops.arrays import scalar
from mobileprep.ops.kernel import flop_rule, kernel, per_input, per_output
from mobileprep.ops.numerics.integer_products import to_quint8
from mobileprep.ops.numerics.quantization import (
    Dequantizer,
    Kind,
    Limits,
    Quantizer,
    as_integers,
    flushed,
    round_half_away,
    steps_of,
    through_int32,
    to_floats,
)
from mobileprep.ops.quantized.ranges import (
    Quantized,
    bad_limits,
    check_output,
    check_type,
    limits_of,
    number,
    unchanged_with_range,
)
from mobileprep.ops.shape_function import (
    OutputShapes,
    ShapeArgs,
    at_least_rank,
    dim,
    fixed,
    merge_dim,
    shape_fn,
    unchanged,
    with_rank,
)

_TYPES = (DType.QUINT8, DType.QINT8, DType.QUINT16, DType.QINT16, DType.QINT32)
_LARGEST = np.finfo(np.float32).max
_ZERO, _ONE = np.float32(0), np.float32(1)


@kernel("QuantizeV2", flops=per_output(5))
def quantize(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """Quantize floats; return also the range, which is extended to include zero.

    NaN becomes 0, and with MIN_FIRST the lowest 32-bit integer.

    Args:
        node: with T, mode, and round_mode and, since TensorFlow 2, axis, narrow_range, and
            ensure_minimum_range.
        low: the low end of the range: a scalar, or a vector along axis.
        high: the high end, likewise.
    """
    check_type(node, "dtype", x, DType.FLOAT)
    kind = check_output(node, "T", *_TYPES).numpy
    assert kind is not None
    mode, to_even = _modes(node)
    axis = sliced_axis(node, x)
    ends = (flushed(along_axis(node, end, x, axis)) for end in (low, high))
    lows, highs = _nudged(node, *ends)
    if mode == "MIN_FIRST":
        if axis is not None:
            message = f"node {node.name!r}: MIN_FIRST has no ranges along an axis"
            raise UnsupportedError(message, "use MIN_COMBINED or SCALED")
        limits = Limits(np.float32(lows.item()), np.float32(highs.item()))
        return Quantizer.of(limits, kind)(x), *limits.outputs()
    if mode == "MIN_COMBINED":
        out = _min_combined(x, lows, highs, kind)
    else:
        narrow = node.attr_bool("narrow_range", False)
        out, lows, highs = _scaled(x, lows, highs, kind, narrow=narrow, to_even=to_even)
    shape = () if axis is None else low.shape
    return out, lows.reshape(shape), highs.reshape(shape)


@shape_fn("QuantizeV2")
def quantize_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape, and those of the ranges: scalars, or vectors along an axis."""
    axis = args.node.attr_int("axis", -1)
    shape = args.shapes[0]
    if axis < 0:
        return [shape, (), ()]
    slices = merge_dim(with_rank(args.shapes[2], 1)[0], dim(shape, axis))
    return [shape, (slices,), (slices,)]


def _modes(node: Node) -> tuple[str, bool]:
    """Return the mode, and whether halves are rounded to even integers."""
    mode = node.attr_str("mode", "MIN_COMBINED")
    rounding = node.attr_str("round_mode", "HALF_AWAY_FROM_ZERO")
    modes = ("MIN_COMBINED", "MIN_FIRST", "SCALED")
    if mode not in modes or rounding not in ("HALF_AWAY_FROM_ZERO", "HALF_TO_EVEN"):
        message = f"node {node.name!r} ({node.op}) has no mode {mode!r} with {rounding!r}"
        raise InvalidGraphError(message, "the modes are MIN_COMBINED, MIN_FIRST and SCALED")
    to_even = rounding == "HALF_TO_EVEN"
    if to_even and mode != "SCALED":
        message = f"node {node.name!r}: {mode} does not round to even integers"
        raise InvalidGraphError(message, "use SCALED, or round_mode HALF_AWAY_FROM_ZERO")
    return mode, to_even


def _nudged(node: Node, low: Array, high: Array) -> tuple[Array, Array]:
    """Extend ranges to include zero and a minimum width.

    The operand that ``np.where`` selects determines the handling of NaN.
    """
    if (high < low).any():
        raise bad_limits(node, low.reshape(-1).tolist(), high.reshape(-1).tolist())
    largest = np.where(np.abs(low) < np.abs(high), np.abs(high), np.abs(low))
    least = np.float32(node.attr_float("ensure_minimum_range", 0.01))
    begin = np.where(low < _ZERO, low, _ZERO)
    end = begin + np.where(largest > _ONE, largest, _ONE) * least
    end = np.where(high < end, end, high)
    return begin, np.where(end > _ZERO, end, _ZERO)


def _held(x: Array, low: Array, high: Array) -> NDArray[np.float32]:
    """Clip x to a range, keeping NaN, into a new array."""
    out: NDArray[np.float32] = np.asarray(np.minimum(x, high))
    return np.maximum(out, low, out=out)


def _min_combined(x: Array, low: Array, high: Array, kind: Kind) -> Array:
    steps = steps_of(kind)
    out = _held(x, low, high)
    out -= low
    out *= ((steps.count - 1.0) / (high - low).astype(np.float64)).astype(np.float32)
    if steps.lowest < 0:
        out -= np.float32(steps.count / 2)
        return as_integers(round_half_away(out), kind)
    out += np.float32(0.5)
    return as_integers(out, kind)


def _scaled(
    x: Array, low: Array, high: Array, kind: Kind, *, narrow: bool, to_even: bool
) -> tuple[Array, Array, Array]:
    """Quantize with a scale from the larger end; return also the adjusted range."""
    steps = steps_of(kind)
    least, most = np.float32(steps.lowest + narrow), np.float32(steps.highest)
    below = np.where(least * low > 0, least / low, _LARGEST)
    above = np.where(most * high > 0, most / high, _LARGEST)
    scale = np.where(above < below, above, below)
    low, high = flushed(least / scale), flushed(most / scale)
    out = _held(x, low, high)
    out *= scale
    whole = np.rint(out, out=out) if to_even else round_half_away(out)
    return as_integers(whole, kind), low, high


@kernel("Dequantize", shape=unchanged, flops=per_output(2))
def dequantize(node: Node, values: Array, low: Array, high: Array) -> Array:
    """Dequantize integers in single precision.

    Args:
        node: with T, mode and, since TensorFlow 2, axis, narrow_range, and dtype.
        low: the float value of the lowest integer: a scalar, or a vector along axis.
        high: the float value of the highest integer, likewise.
    """
    check_type(node, "T", values, *_TYPES)
    dtype = check_output(node, "dtype", DType.FLOAT, DType.BFLOAT16)
    mode = node.attr_str("mode", "MIN_COMBINED")
    axis = sliced_axis(node, values)
    _check_mode(node, mode, dtype, axis)
    if mode == "MIN_FIRST":
        return Dequantizer.of(limits_of(low, high), values.dtype)(values)
    lows, highs = (flushed(along_axis(node, end, values, axis)) for end in (low, high))
    if mode == "MIN_COMBINED":
        return _dequantized_min_combined(values, lows, highs).astype(dtype.numpy, copy=False)
    floats = through_int32(values) if axis is None else values.astype(np.float32)
    floats *= _step(lows, highs, values.dtype, narrow=node.attr_bool("narrow_range", False))
    return floats


def _check_mode(node: Node, mode: str, dtype: DType, axis: int | None) -> None:
    if mode not in ("MIN_COMBINED", "MIN_FIRST", "SCALED"):
        message = f"node {node.name!r}: {node.op} has no mode {mode!r}"
        raise InvalidGraphError(message, "the modes are MIN_COMBINED, MIN_FIRST and SCALED")
    if dtype is DType.BFLOAT16 and mode != "MIN_COMBINED":
        message = f"node {node.name!r}: {mode} does not put out bfloat16"
        raise UnsupportedError(message, "use MIN_COMBINED")
    if axis is not None and mode == "MIN_FIRST":
        message = f"node {node.name!r}: MIN_FIRST has no ranges along an axis"
        raise UnsupportedError(message, "use MIN_COMBINED or SCALED")


def _dequantized_min_combined(values: Array, low: Array, high: Array) -> NDArray[np.float32]:
    steps = steps_of(values.dtype)
    width = np.float32(steps.highest) - np.float32(steps.lowest)
    out = np.array(values, dtype=np.float32)
    if steps.lowest < 0:
        out += (width + np.float32(1)) / np.float32(2)
    out *= (high - low) / width
    out += low
    return out


def _step(low: Array, high: Array, kind: Kind, *, narrow: bool) -> Array:
    """Return the float value of integer 1, if integer 0 is 0.0."""
    steps = steps_of(kind)
    above: Array = high / np.float32(steps.highest)
    if steps.lowest == 0:
        return above
    below: Array = low / np.float32(steps.lowest + narrow)
    return np.where(below < above, above, below)


# Per element: two bounds, a difference, a product, a rounding, a product, a sum.
_OPERATIONS = 7


@kernel("FakeQuantWithMinMaxArgs", shape=unchanged, flops=per_output(_OPERATIONS))
def fake_quant_args(node: Node, x: Array) -> Array:
    """Simulate quantization between two bounds that are attributes."""
    low = np.float32(node.attr_float("min", -6.0))
    high = np.float32(node.attr_float("max", 6.0))
    return _fake_quantized(node, x, np.asarray(low), np.asarray(high))


shape_fn("FakeQuantWithMinMaxArgsGradient")(unchanged)


@kernel("FakeQuantWithMinMaxVars", shape=unchanged, flops=per_output(_OPERATIONS))
def fake_quant_vars(node: Node, x: Array, low: Array, high: Array) -> Array:
    """Simulate quantization between two bounds that are scalars."""
    return _fake_quantized(node, x, low.reshape(()), high.reshape(()))


@kernel("FakeQuantWithMinMaxVarsPerChannel", flops=per_output(_OPERATIONS))
def fake_quant_channels(node: Node, x: Array, low: Array, high: Array) -> Array:
    """Simulate quantization between bounds for each channel of the last axis."""
    if not low.shape == high.shape == x.shape[-1:]:
        message = f"bounds of shapes {list(low.shape)} and {list(high.shape)} for {list(x.shape)}"
        raise ValueError(message)
    return _fake_quantized(node, x, low, high)


@shape_fn("FakeQuantWithMinMaxVarsPerChannel")
def fake_quant_per_channel_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape, whose last size the ranges must have."""
    shape = at_least_rank(args.shapes[0], 1)
    for ends in args.shapes[1:]:
        merge_dim(with_rank(ends, 1)[0], dim(shape, -1))
    return [shape]


def _fake_quantized(node: Node, x: Array, low: Array, high: Array) -> Array:
    """Clip x to bounds, nudged to make zero exact, and round it to the nearest step.

    The order of operations is TensorFlow's, since it determines the rounding of ties.

    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference" (2018), section 3.
    """
    lowest = np.float32(1 if node.attr_bool("narrow_range", False) else 0)
    bits = node.attr_int("num_bits", 8)
    if not 2 <= bits <= 16:
        message = f"num_bits is {bits}; it is 2 to 16"
        raise ValueError(message)
    highest = np.float32((1 << bits) - 1)
    empty = (low == 0) & (high == 0)
    width = np.where(empty, highest - lowest, high - low)
    scale = width / (highest - lowest)
    from_low = lowest - low / scale
    # Half away from zero, like round in C.
    rounded = np.floor(np.abs(from_low) + np.float32(0.5)) * np.sign(from_low)
    zero = np.where(from_low < lowest, lowest, np.where(from_low > highest, highest, rounded))
    nudged_low = (lowest - zero) * scale
    nudged_high = (highest - zero) * scale
    # Using the reciprocal of the step would round twice.
    inverse = (highest - lowest) / width
    zero_step = np.floor(-nudged_low * inverse + np.float32(0.5))
    above = np.minimum(np.maximum(x, nudged_low), nudged_high) - nudged_low
    steps = above / scale if node.op == "FakeQuantWithMinMaxVars" else above * inverse
    rounded_steps = np.floor(steps - zero_step + np.float32(0.5))
    out: Array = np.where(empty, np.float32(0), rounded_steps * scale)
    return out.astype(x.dtype, copy=False)


class _Steps(Struct, frozen=True):
    """The simulated integers, and how numbers are rounded to them."""

    lowest: int
    highest: int
    half_up: bool = False


@kernel("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def round_trip(node: Node, x: Array, low: Array, high: Array, bits: Array | None = None) -> Array:
    """Round x to a step of num_bits bits.

    Args:
        node: with signed_input, num_bits, range_given, round_mode, narrow_range, and axis.
        low: the low end of the range, if range_given: a scalar, or a vector along axis.
        high: the high end, likewise.
        bits: replaces num_bits in the third version.
    """
    mode = node.attr_str("round_mode", "HALF_TO_EVEN")
    if mode not in ("HALF_TO_EVEN", "HALF_UP"):
        message = f"node {node.name!r} ({node.op}) has no round_mode {mode!r}"
        raise InvalidGraphError(message, "it is HALF_TO_EVEN or HALF_UP")
    count = node.attr_int("num_bits", 8) if bits is None else scalar(bits)
    steps = _steps(node, count, half_up=mode == "HALF_UP")
    return _rounded(node, x, (low, high), steps)


@kernel("QuantizeAndDequantize")
def round_trip_v1(node: Node, x: Array) -> Array:
    """Round like ``round_trip`` with one range, from the attributes input_min and input_max."""
    ends = (node.attr_float(name, 0.0) for name in ("input_min", "input_max"))
    # The attributes are single-precision numbers, regardless of the type of x.
    low, high = (np.array(np.float32(end), dtype=x.dtype) for end in ends)
    return _rounded(node, x, (low, high), _steps(node, node.attr_int("num_bits", 8)))


_OPS = (
    *("QuantizeAndDequantize", "QuantizeAndDequantizeV2"),
    *("QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4"),
)
shape_fn(*_OPS)(unchanged)
flop_rule(*_OPS)(per_output(7))


def _steps(node: Node, bits: int, *, half_up: bool = False) -> _Steps:
    signed = node.attr_bool("signed_input", True)
    if not 0 < bits < (62 if signed else 63):
        message = f"node {node.name!r} ({node.op}) cannot have {bits} bits"
        raise InvalidGraphError(message, "give 1 to 61 bits")
    if not signed:
        return _Steps(0, (1 << bits) - 1, half_up)
    half = 1 << (bits - 1)
    return _Steps(-half + node.attr_bool("narrow_range", False), half - 1, half_up)


def _rounded(node: Node, x: Array, ends: tuple[Array, Array], steps: _Steps) -> Array:
    check_type(node, "T", x, DType.FLOAT, DType.DOUBLE)
    axis = node.attr_int("axis", -1)
    if not -1 <= axis < max(x.ndim, 1):
        message = f"node {node.name!r} ({node.op}): no axis {axis} among {x.ndim}"
        raise InvalidGraphError(message, "count the axis from the front, or give -1 for none")
    if not x.size:
        return x
    is_given = node.attr_bool("range_given", False)
    low, high = _given_limits(node, x, ends, axis) if is_given else _observed_limits(x, axis)
    scale, inverse, low, high = _scales(flushed(low), flushed(high), steps)
    out = _clamped(x, low, high) if is_given else x.copy()
    out *= scale
    if steps.half_up:
        out += x.dtype.type(0.5)
        np.floor(out, out=out)
    else:
        np.rint(out, out=out)
    out *= inverse
    return out


def _given_limits(
    node: Node, x: Array, ends: tuple[Array, Array], axis: int
) -> tuple[Array, Array]:
    count = 1 if axis == -1 else x.shape[axis]
    if any(end.size != count for end in ends):
        message = f"node {node.name!r} ({node.op}) needs {count} low and high ends of ranges"
        raise InvalidGraphError(message, "give one for each slice along the axis")
    if axis == -1 and not (ends[0] <= ends[1]).all():
        raise bad_limits(node, ends[0], ends[1])
    shape = [1] * x.ndim
    if axis != -1:
        shape[axis] = count
    return ends[0].reshape(shape), ends[1].reshape(shape)


def _observed_limits(x: Array, axis: int) -> tuple[Array, Array]:
    """Return the smallest and the largest element, of all or of each slice, ignoring NaN."""
    others = tuple(i for i in range(x.ndim) if i != axis)
    low, high = (f.reduce(x, axis=others, keepdims=True) for f in (np.fmin, np.fmax))
    return np.asarray(low), np.asarray(high)


def _clamped(x: Array, low: Array, high: Array) -> Array:
    """Clip x to a range, keeping NaN and the sign of zeros, into a new array."""
    out = np.where(high < x, high, x)
    np.copyto(out, low, where=out < low)
    return out


def _scales(low: Array, high: Array, steps: _Steps) -> tuple[Array, Array, Array, Array]:
    """Return scale, inverse, and the range, determined by the side with larger steps."""
    kind = low.dtype.type
    least, most, limit = kind(steps.lowest), kind(steps.highest), np.finfo(low.dtype).max
    below = np.where(least * low > 0, least / low, limit)
    above = np.where(most * high > 0, most / high, limit)
    by_low = below < above
    inverse = np.where(by_low, low / least, high / most)
    return (
        np.where(by_low, below, above),
        inverse,
        np.where(by_low, low, least * inverse),
        np.where(by_low, most * inverse, high),
    )


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
