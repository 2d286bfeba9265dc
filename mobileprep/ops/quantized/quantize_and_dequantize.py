"""QuantizeAndDequantize: floats rounded to the steps of an integer type."""

from __future__ import annotations

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.frozen import dataclass
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.quantization import flushed
from mobileprep.ops.arrays import scalar
from mobileprep.ops.common_costs import per_output
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.quantized.ranges import bad_limits, check_type
from mobileprep.ops.shape_function import shape_fn


@dataclass(frozen=True, slots=True)
class _Steps:
    """The integers that are simulated, and how numbers are rounded to them."""

    lowest: int
    highest: int
    half_up: bool = False


@kernel("QuantizeAndDequantizeV2", "QuantizeAndDequantizeV4")
def round_trip(node: Node, x: Array, low: Array, high: Array) -> Array:
    """x rounded to a step of num_bits bits.

    Args:
        node: gives signed_input, num_bits, range_given, round_mode, narrow_range and axis.
        x: floats or doubles.
        low: the low end of the range, where range_given: a scalar, or a vector along axis.
        high: the high end.

    Raises:
        InvalidGraphError: num_bits, round_mode, axis or the range cannot be.
    """
    mode = node.attr_str("round_mode", "HALF_TO_EVEN")
    if mode not in ("HALF_TO_EVEN", "HALF_UP"):
        message = f"node {node.name!r} ({node.op}) has no round_mode {mode!r}"
        raise InvalidGraphError(message, "it is HALF_TO_EVEN or HALF_UP")
    steps = _steps(node, node.attr_int("num_bits", 8), half_up=mode == "HALF_UP")
    return _rounded(node, x, (low, high), steps)


@kernel("QuantizeAndDequantizeV3")
def round_trip_v3(node: Node, x: Array, low: Array, high: Array, bits: Array) -> Array:
    """``round_trip`` with num_bits given by a tensor, halves rounded to even integers."""
    return _rounded(node, x, (low, high), _steps(node, scalar(bits)))


@kernel("QuantizeAndDequantize")
def round_trip_v1(node: Node, x: Array) -> Array:
    """``round_trip`` with one range, given by the attributes input_min and input_max."""
    ends = (node.attr_float(name, 0.0) for name in ("input_min", "input_max"))
    # The attributes are single-precision numbers, whatever the type of x.
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
        message = f"node {node.name!r} ({node.op}): there is no axis {axis} among {x.ndim}"
        raise InvalidGraphError(message, "count the axis from the front, or give -1 for none")
    if not x.size:
        return x
    given = node.attr_bool("range_given", False)
    low, high = _given(node, x, ends, axis) if given else _found(x, axis)
    scale, inverse, low, high = _scales(flushed(low), flushed(high), steps)
    out = _held(x, low, high) if given else x.copy()
    out *= scale
    if steps.half_up:
        out += x.dtype.type(0.5)
        np.floor(out, out=out)
    else:
        np.rint(out, out=out)
    out *= inverse
    return out


def _given(node: Node, x: Array, ends: tuple[Array, Array], axis: int) -> tuple[Array, Array]:
    wanted = 1 if axis == -1 else x.shape[axis]
    if any(end.size != wanted for end in ends):
        message = f"node {node.name!r} ({node.op}) needs {wanted} low and high ends of ranges"
        raise InvalidGraphError(message, "give one for each slice along the axis")
    if axis == -1 and not (ends[0] <= ends[1]).all():
        raise bad_limits(node, ends[0], ends[1])
    shape = [1] * x.ndim
    if axis != -1:
        shape[axis] = wanted
    return ends[0].reshape(shape), ends[1].reshape(shape)


def _found(x: Array, axis: int) -> tuple[Array, Array]:
    """The smallest and the largest element, of all or of each slice; NaN does not count."""
    others = tuple(i for i in range(x.ndim) if i != axis)
    low, high = (f.reduce(x, axis=others, keepdims=True) for f in (np.fmin, np.fmax))
    return np.asarray(low), np.asarray(high)


def _held(x: Array, low: Array, high: Array) -> Array:
    """x held within a range, NaN and zeros with their sign as they are; a new array."""
    out = np.where(high < x, high, x)
    np.copyto(out, low, where=out < low)
    return out


def _scales(low: Array, high: Array, steps: _Steps) -> tuple[Array, Array, Array, Array]:
    """Steps for one, one for a step, and the range that the side with larger steps leads to."""
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
