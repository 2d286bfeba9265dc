"""Dequantize: 8-, 16- and 32-bit integers to floats, by each of TensorFlow's three rules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.linear_quantization import Dequantizer
from mobileprep.numerics.quantization import Kind, flushed, steps_of, through_int32
from mobileprep.ops.array.slice_ranges import along_axis, sliced_axis
from mobileprep.ops.common_costs import per_output
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.quantized.ranges import check_output, check_type, limits_of
from mobileprep.ops.shape_function import shape_fn

_TYPES = (DType.QUINT8, DType.QINT8, DType.QUINT16, DType.QINT16, DType.QINT32)


@kernel("Dequantize")
def dequantize(node: Node, values: Array, low: Array, high: Array) -> Array:
    """Floats for quantized integers, in single precision.

    Args:
        node: gives T, mode and, since TensorFlow 2, axis, narrow_range and dtype.
        values: the integers.
        low: the float that the lowest integer stands for: a scalar, or a vector along axis.
        high: the same for the highest.

    Raises:
        UnsupportedError: a type, or a mode with an axis or a type, that the op does not have.
        InvalidGraphError: there is no such mode, or the ends of the range do not fit the axis.
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
        return _min_combined(values, lows, highs).astype(dtype.numpy, copy=False)
    floats = through_int32(values) if axis is None else values.astype(np.float32)
    floats *= _step(lows, highs, values.dtype, narrow=node.attr_bool("narrow_range", False))
    return floats


shape_fn("Dequantize")(unchanged)
flop_rule("Dequantize")(per_output(2))


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


def _min_combined(values: Array, low: Array, high: Array) -> NDArray[np.float32]:
    steps = steps_of(values.dtype)
    width = np.float32(steps.highest) - np.float32(steps.lowest)
    out = np.array(values, dtype=np.float32)
    if steps.lowest < 0:
        out += (width + np.float32(1)) / np.float32(2)
    out *= (high - low) / width
    out += low
    return out


def _step(low: Array, high: Array, kind: Kind, *, narrow: bool) -> Array:
    """What one stands for where 0 stands for 0.0."""
    steps = steps_of(kind)
    above: Array = high / np.float32(steps.highest)
    if steps.lowest == 0:
        return above
    below: Array = low / np.float32(steps.lowest + narrow)
    return np.where(below < above, above, below)
