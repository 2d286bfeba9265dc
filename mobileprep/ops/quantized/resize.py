"""Resizing of quantized images, which keep their range."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.resizing import Sampling, resize_bilinear
from mobileprep.ops.arrays import check_allocation, integers
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.image.resize import bilinear_flops, resize_shape
from mobileprep.ops.kernel import kernel
from mobileprep.ops.quantized.ranges import Quantized, check_type, same_range
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

# Bits of the fractions that weights are counted in: as many as products leave room for.
_BITS = {DType.QUINT8: 7, DType.QINT32: 30}


@kernel("QuantizedResizeBilinear")
def quantized_resize(node: Node, images: Array, size: Array, low: Array, high: Array) -> Quantized:
    """Images resized by linear interpolation in fixed-point arithmetic.

    Args:
        node: gives T, align_corners and half_pixel_centers.
        images: [batch, height, width, channels].
        size: the new height and width.
        low: the low end of the range.
        high: the high end.

    Raises:
        ValueError: there is no image of that size, or none in ``images``.
    """
    dtype = check_type(node, "T", images, DType.QUINT8, DType.QINT32, DType.FLOAT)
    wanted = integers(size)
    if images.ndim != 4 or len(wanted) != 2 or min(*wanted, *images.shape[1:3]) < 1:
        message = f"no size {list(wanted)} for images of shape {list(images.shape)}"
        raise ValueError(message)
    height, width = wanted
    # Where there are no images, the places of pixels along each axis are worked out all the same.
    batch, channels = max(len(images), 1), max(images.shape[3], 1)
    check_allocation((batch, height, width, channels), images.dtype)
    sampling = Sampling(
        node.attr_bool("align_corners", False), node.attr_bool("half_pixel_centers", False)
    )
    if dtype is DType.FLOAT:
        out = resize_bilinear(images, (height, width), sampling)
    elif images.shape[1:3] == (height, width):
        out = images
    else:
        out = _resized(images, (height, width), sampling, _BITS[dtype])
    return out, *same_range(low, high)


@shape_fn("QuantizedResizeBilinear")
def quantized_resize_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Images of the given height and width, and their range."""
    return [*resize_shape(args), (), ()]


flop_rule("QuantizedResizeBilinear")(bilinear_flops)


def _resized(images: Array, size: tuple[int, int], sampling: Sampling, bits: int) -> Array:
    """Rows first stretched along the width, then mixed two by two.

    Numbers carry fractions of some bits in between; half of them is lost before the last product.
    """
    one = 1 << bits
    kind = np.dtype(np.int16 if bits < 8 else np.int64)
    (top, bottom, down), (left, right, across) = (
        _taps(extent, count, sampling, one, kind)
        for extent, count in zip(images.shape[1:3], size, strict=True)
    )
    used, places = np.unique(np.concatenate([top, bottom]), return_inverse=True)
    top, bottom = places.reshape(2, -1)
    # 32-bit numbers go through single precision, as the original's integer types are converted.
    rows = images.take(used, axis=1).astype(np.float32)
    start = rows.take(left, axis=2).astype(kind)
    lines = rows.take(right, axis=2).astype(kind)
    lines -= start
    lines *= across[:, None]
    start *= kind.type(one)
    lines += start
    out = np.empty((images.shape[0], *size, images.shape[3]), dtype=images.dtype)
    for row, (upper, lower) in enumerate(zip(top, bottom, strict=True)):
        first = lines[:, upper]
        mixed = _cut(lines[:, lower] - first, one)
        mixed *= down[row]
        mixed += first
        mixed += kind.type(one // 2)
        out[:, row] = _cut(mixed, one)
    return out


def _taps(
    extent: int, count: int, sampling: Sampling, one: int, kind: np.dtype[np.signedinteger]
) -> tuple[Array, Array, Array]:
    """The pixels on both sides of each new one, and the share of the second in fractions."""
    positions = sampling.positions(extent, count)
    below = np.floor(positions)
    last = np.minimum(np.ceil(positions).astype(np.int64), extent - 1)
    first = np.minimum(np.maximum(below.astype(np.int64), 0), last)
    share = ((positions - below) * np.float32(one)).astype(kind)
    return first, np.maximum(last, 0), share


def _cut(x: Array, one: int) -> Array:
    """Quotients cut towards zero, as C's."""
    out = x + np.where(x < 0, x.dtype.type(one - 1), x.dtype.type(0))
    out >>= x.dtype.type(one.bit_length() - 1)
    return np.asarray(out)
