"""Dequantize: 8-, 16- and 32-bit integers to floats, by each of TensorFlow's three rules."""

from __future__ import annotations

import numpy as np

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel


@kernel("Dequantize")
def dequantize(node: Node, values: Array, lowest: Array, highest: Array) -> Array:
    """Floats for quantized integers, in single precision as TensorFlow computes them.

    Args:
        node: gives T, mode and, since TensorFlow 2, axis, narrow_range and dtype.
        values: the integers.
        lowest: the float that the lowest integer stands for: a scalar, or a vector along axis.
        highest: the same for the highest.
    """
    mode = node.attr_str("mode", "MIN_COMBINED")
    axis = node.attr_int("axis", -1)
    low, high = _along(lowest, values, axis, node), _along(highest, values, axis, node)
    limits = np.iinfo(values.dtype)
    if mode == "MIN_COMBINED":
        out = _min_combined(values, low, high, limits)
    elif mode == "MIN_FIRST":
        out = _min_first(values, low, high, limits)
    elif mode == "SCALED":
        out = _scaled(values, low, high, limits, narrow=node.attr_bool("narrow_range", False))
    else:
        message = f"node {node.name!r}: Dequantize has no mode {mode!r}"
        raise UnsupportedError(message)
    return out.astype(node.attr_dtype("dtype", DType.FLOAT).numpy, copy=False)


def _along(limit: Array, values: Array, axis: int, node: Node) -> Array:
    """A limit as floats that broadcast against the values."""
    if axis == -1:
        if limit.size != 1:
            message = f"node {node.name!r}: {limit.size} limits are given where one is needed"
            raise InvalidGraphError(message)
        return limit.astype(np.float32).reshape(())
    if not 0 <= axis < values.ndim or limit.shape != (values.shape[axis],):
        message = f"node {node.name!r}: {limit.size} limits do not go along axis {axis}"
        raise InvalidGraphError(message)
    shape = [1] * values.ndim
    shape[axis] = -1
    return limit.astype(np.float32).reshape(shape)


def _min_combined(values: Array, low: Array, high: Array, limits: np.iinfo) -> Array:
    half = np.float32((int(limits.max) - int(limits.min) + 1) / 2 if limits.min < 0 else 0)
    scale = (high - low) / (np.float32(limits.max) - np.float32(limits.min))
    out: Array = (values.astype(np.float32) + half) * scale + low
    return out


def _min_first(values: Array, low: Array, high: Array, limits: np.iinfo) -> Array:
    """The rule of quantization_utils: the range is stretched so that 0.0 is an integer."""
    steps = np.float64(int(limits.max) - int(limits.min) + 1)
    stretched = ((high - low) * (steps / (steps - 1))).astype(np.float32)
    scale = (stretched / steps).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        rounded = _round_half_away(low / scale) * scale
    origin = np.where(high == low, low, rounded) - np.float32(limits.min) * scale
    out: Array = origin + values.astype(np.float32) * scale
    return out


def _scaled(
    values: Array,
    low: Array,
    high: Array,
    limits: np.iinfo,
    *,
    narrow: bool,
) -> Array:
    least = int(limits.min) + 1 if narrow and limits.min < 0 else int(limits.min)
    scale = high / np.float32(limits.max)
    if least < 0:
        scale = np.maximum(low / np.float32(least), scale)
    out: Array = values.astype(np.float32) * scale
    return out


def _round_half_away(x: Array) -> Array:
    """C's ``round``: halves away from zero."""
    out: Array = np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x)
    return out
