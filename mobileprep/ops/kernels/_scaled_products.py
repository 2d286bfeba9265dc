"""Convolutions of eight-bit numbers whose zero is 0, whatever their ranges are.

TensorFlow 2 leaves them to oneDNN. The range of filters may be given for each output channel.

Source: ``mkl_quantized_conv_ops.h`` of TensorFlow.
"""

from __future__ import annotations

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.depthwise import convolve_depthwise
from mobileprep.ops.integer_products import convolve_integers
from mobileprep.ops.kernels._common import check_allocation
from mobileprep.ops.kernels._quantized import Quantized, limits_of
from mobileprep.ops.quantization import flushed
from mobileprep.ops.window import Window, filter_window

Ends = tuple[Array, Array]
"""The low and the high end of a range, or of one for each output channel."""

_INT32 = np.dtype(np.int32)
_LARGEST = 255
# Taps for which a sum of products of eight-bit numbers is exact in single precision.
_EXACT_TAPS = (1 << 24) // (255 * 128)
# Signed numbers count from -127, so that they lie evenly around their zero.
_UNSIGNED_STEPS, _SIGNED_STEPS = np.float32(255), np.float32(254)


def scaled_conv(node: Node, x: Array, filters: Array, of_x: Ends, of_f: Ends) -> Quantized:
    """A convolution of uint8 [batch, height, width, channels] with int8 filters."""
    if x.shape[3] != filters.shape[2]:
        message = f"{x.shape[3]} channels do not fit filters of {filters.shape[2]}"
        raise ValueError(message)
    window = _window(node, x, filters, filters.shape[3])
    out = convolve_integers(x, filters, window, _LARGEST)
    return out, *_limits(node, of_x, of_f, filters.shape[3])


def scaled_depthwise_conv(
    node: Node, x: Array, filters: Array, of_x: Ends, of_f: Ends
) -> Quantized:
    """A convolution of each channel of uint8 x with its own int8 filters."""
    channels = filters.shape[2] * filters.shape[3]
    window = _window(node, x, filters, channels)
    kind = np.float32 if filters.shape[0] * filters.shape[1] <= _EXACT_TAPS else np.float64
    out = convolve_depthwise(x.astype(kind), filters.astype(kind), window)
    return out.astype(np.int32), *_limits(node, of_x, of_f, channels)


def _window(node: Node, x: Array, filters: Array, channels: int) -> Window:
    window = filter_window(node, x, filters)
    check_allocation((len(x), *window.positions(x.shape[1:-1]), channels), _INT32)
    return window


def _limits(node: Node, of_x: Ends, of_f: Ends, channels: int) -> Ends:
    """The range of the sums, one for each output channel where the filters' is."""
    if of_f[0].shape != of_f[1].shape or of_f[0].size not in (1, channels):
        shapes = [list(end.shape) for end in of_f]
        message = f"node {node.name!r} ({node.op}) has ends of ranges of shapes {shapes}"
        raise InvalidGraphError(message, "give one range, or one for each output channel")
    low, high = map(flushed, of_f)
    with np.errstate(all="ignore"):
        step = limits_of(*of_x).span / _UNSIGNED_STEPS * ((high - low) / _SIGNED_STEPS)
        least, most = (step * np.float32(end) for end in (-(2**31), 2**31 - 1))
        return np.asarray(least), np.asarray(most)
