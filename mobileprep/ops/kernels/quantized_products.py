"""Kernels of quantized matrix products and convolutions: 8-bit factors, 32-bit sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.integer_products import convolve_integers, multiply_integers, wrapped
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import check_allocation
from mobileprep.ops.kernels._quantized import (
    Quantized,
    check_output,
    check_type,
    limits_of,
    product_limits,
    proper_limits,
)
from mobileprep.ops.kernels._scaled_products import scaled_conv
from mobileprep.ops.quantization import Limits, offset_of_zero
from mobileprep.ops.window import Window, spatial

_UINT8 = np.dtype(np.uint8)
_INT32 = np.dtype(np.int32)
# The largest eight-bit number, from which an offset of at most as much is taken.
_LARGEST = 255


@kernel("QuantizedMatMul")
def quantized_mat_mul(
    node: Node, x: Array, y: Array, low_x: Array, high_x: Array, low_y: Array, high_y: Array
) -> Quantized:
    """The product of two matrices, each transposed where its attribute says so.

    Raises:
        InvalidGraphError: a range ends before it begins.
        ValueError: the matrices do not fit each other.
    """
    check_type(node, "T1", x, DType.QUINT8)
    check_type(node, "T2", y, DType.QUINT8)
    check_output(node, "Toutput", DType.QINT32)
    of_x, of_y = proper_limits(node, low_x, high_x), proper_limits(node, low_y, high_y)
    if x.ndim != 2 or y.ndim != 2:
        message = "both operands must be matrices"
        raise ValueError(message)
    left = x.T if node.attr_bool("transpose_a", False) else x
    right = y.T if node.attr_bool("transpose_b", False) else y
    if left.shape[1] != right.shape[0]:
        message = f"{list(left.shape)} does not fit {list(right.shape)}"
        raise ValueError(message)
    check_allocation((left.shape[0], right.shape[1]), _INT32)
    zero = offset_of_zero(of_x, _UINT8)
    factors = right.astype(np.int64) - offset_of_zero(of_y, _UINT8)
    shift = _shift(zero)
    out = multiply_integers(left.astype(np.int16) - np.int16(shift), factors, _LARGEST)
    if shift != zero:
        out += wrapped(wrapped(factors.sum(axis=0)).astype(np.int64) * (shift - zero))
    return out, *product_limits(of_x, of_y, _UINT8, _UINT8).outputs()


def _shift(zero: int) -> int:
    """What to take from eight-bit numbers before they are multiplied.

    It is the number that stands for 0.0 where that is an eight-bit one. Beyond that, padding is
    its lowest eight bits in the original, and nothing is taken for numbers below zero.
    """
    return zero & _LARGEST if zero > 0 else 0


@kernel("QuantizedConv2D")
def quantized_conv(
    node: Node, x: Array, filters: Array, low_x: Array, high_x: Array, low_f: Array, high_f: Array
) -> Quantized:
    """A convolution over two spatial axes.

    With unsigned filters, numbers stand for floats as ranges say. Signed filters have their zero at
    0, whatever the ranges are, and so has x.

    Raises:
        UnsupportedError: strides or dilations that the original has no kernel for.
        InvalidGraphError: strides, dilations or padding cannot be.
        ValueError: the filters do not fit x.
    """
    check_type(node, "Tinput", x, DType.QUINT8)
    signed = check_type(node, "Tfilter", filters, DType.QUINT8, DType.QINT8) is DType.QINT8
    check_output(node, "out_type", DType.QINT32)
    if x.ndim != 4 or filters.ndim != 4:
        message = "input and filters need 4 axes"
        raise ValueError(message)
    if signed:
        return scaled_conv(node, x, filters, (low_x, high_x), (low_f, high_f))
    if x.shape[3] != filters.shape[2]:
        message = f"{x.shape[3]} channels do not fit filters of {filters.shape[2]}"
        raise ValueError(message)
    of_x, of_f = limits_of(low_x, high_x), limits_of(low_f, high_f)
    window, inner = _window(node, x, filters)
    check_allocation((len(x), *window.positions(inner.shape[1:-1]), filters.shape[3]), _INT32)
    out = _convolved(inner, filters, window, of_x, of_f)
    return out, *product_limits(of_x, of_f, _UINT8, _UINT8).outputs()


def _window(node: Node, x: Array, filters: Array) -> tuple[Window, Array]:
    """The window, and the part of x that it slides over.

    The original centres the windows on the input, whatever the padding: where they do not reach
    its end, they do not reach its beginning either.
    """
    stride = _stride(node)
    padding = node.attr_str("padding")
    pads, cut = [], []
    for extent, size in zip(x.shape[1:3], filters.shape[:2], strict=True):
        if padding not in ("SAME", "VALID"):
            message = f"node {node.name!r} ({node.op}) has the padding {padding!r}"
            raise InvalidGraphError(message, "it is SAME or VALID")
        room = extent if padding == "SAME" else extent - size + 1
        missing = (max(-(-room // stride), 0) - 1) * stride + size - extent
        # C cuts quotients towards zero.
        before = int((missing + (padding == "VALID")) / 2)
        pads.append((max(before, 0), max(missing - before, 0)))
        cut.append(slice(max(-before, 0), extent + min(missing - before, 0)))
    window = Window(filters.shape[:2], (stride, stride), (1, 1), tuple(pads))
    return window, x[:, cut[0], cut[1]]


def _stride(node: Node) -> int:
    strides = node.attr_ints("strides")
    dilations = node.attr_ints("dilations", (1, 1, 1, 1)) or (1, 1, 1, 1)
    if len(strides) != 4 or len(dilations) != 4:
        message = f"node {node.name!r} ({node.op}) needs 4 strides and dilations"
        raise InvalidGraphError(message, "give one for each axis")
    rows, columns = spatial(strides, "NHWC")
    if min(rows, columns) < 1:
        message = f"node {node.name!r} ({node.op}) has the strides {list(strides)}"
        raise InvalidGraphError(message, "a stride is at least 1")
    if rows != columns or any(d != 1 for d in dilations):
        message = f"node {node.name!r}: {node.op} has strides {list(strides)} and dilations "
        message += f"{list(dilations)}"
        raise UnsupportedError(message, "it needs equal strides and no dilations")
    return rows


def _convolved(
    x: Array, filters: Array, window: Window, of_x: Limits, of_f: Limits
) -> NDArray[np.int32]:
    zero = offset_of_zero(of_x, _UINT8)
    factors = filters.astype(np.int64) - offset_of_zero(of_f, _UINT8)
    shift = _shift(zero)
    out = convolve_integers(x.astype(np.int16) - np.int16(shift), factors, window, _LARGEST)
    if shift != zero:
        out += _correction(x.shape, factors, window, zero)
    return out


def _correction(
    shape: Sequence[int], factors: NDArray[np.int64], window: Window, zero: int
) -> NDArray[np.int32]:
    """What products with numbers less ``_shift(zero)`` lack to those with numbers less ``zero``.

    Source: the original pads with the lowest eight bits of a zero above them; of a zero below, it
    leaves the padding out of its sums.
    """
    missing = _shift(zero) - zero
    if zero > 0:
        return wrapped(wrapped(factors.sum(axis=(0, 1, 2))).astype(np.int64) * missing)
    taps = wrapped(factors.sum(axis=2, keepdims=True))
    inside = np.ones((1, *shape[1:3], 1), dtype=np.int16)
    return wrapped(convolve_integers(inside, taps, window, 1).astype(np.int64) * missing)
