"""QuantizeV2: floats to 8-, 16- and 32-bit integers, by each of TensorFlow's three rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.linear_quantization import Quantizer
from mobileprep.numerics.quantization import (
    Kind,
    Limits,
    as_integers,
    flushed,
    round_half_away,
    steps_of,
)
from mobileprep.ops.array.slice_ranges import along_axis, sliced_axis
from mobileprep.ops.common_costs import per_output
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import dim, merge_dim, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.quantized.ranges import Quantized, bad_limits, check_output, check_type
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

_TYPES = (DType.QUINT8, DType.QINT8, DType.QUINT16, DType.QINT16, DType.QINT32)
_LARGEST = np.finfo(np.float32).max
_ZERO, _ONE = np.float32(0), np.float32(1)


@kernel("QuantizeV2")
def quantize(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """Integers for floats, and the range that they stand for, which holds zero.

    NaN becomes 0, and with MIN_FIRST the lowest integer of 32 bits.

    Args:
        node: gives T, mode and round_mode and, since TensorFlow 2, axis, narrow_range and
            ensure_minimum_range.
        x: the floats; those beyond the range become its ends.
        low: the low end of the range: a scalar, or a vector along axis.
        high: the high end.

    Raises:
        UnsupportedError: a type, or a mode with an axis, that the op does not have.
        InvalidGraphError: a range ends before it begins, or does not fit the axis.
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
def quantize_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, and two scalars; ranges of their own for slices where there is an axis."""
    axis = args.node.attr_int("axis", -1)
    shape = args.shapes[0]
    if axis < 0:
        return [shape, (), ()]
    slices = merge_dim(with_rank(args.shapes[2], 1)[0], dim(shape, axis))
    return [shape, (slices,), (slices,)]


flop_rule("QuantizeV2")(per_output(5))


def _modes(node: Node) -> tuple[str, bool]:
    """The rule, and whether halves are rounded to even integers."""
    mode = node.attr_str("mode", "MIN_COMBINED")
    rounding = node.attr_str("round_mode", "HALF_AWAY_FROM_ZERO")
    known = mode in ("MIN_COMBINED", "MIN_FIRST", "SCALED")
    if not known or rounding not in ("HALF_AWAY_FROM_ZERO", "HALF_TO_EVEN"):
        message = f"node {node.name!r} ({node.op}) has no mode {mode!r} with {rounding!r}"
        raise InvalidGraphError(message, "the modes are MIN_COMBINED, MIN_FIRST and SCALED")
    to_even = rounding == "HALF_TO_EVEN"
    if to_even and mode != "SCALED":
        message = f"node {node.name!r}: {mode} does not round to even integers"
        raise InvalidGraphError(message, "use SCALED, or round_mode HALF_AWAY_FROM_ZERO")
    return mode, to_even


def _nudged(node: Node, low: Array, high: Array) -> tuple[Array, Array]:
    """Ranges that hold zero and are not too narrow to compute with.

    Which operand ``np.where`` takes decides what becomes of NaN.
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
    """x held within a range, NaN as it is; a new array."""
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
    """The integers, and the range that zero and the larger of its ends lead to."""
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
