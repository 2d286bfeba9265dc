"""Quantized concatenation, reshaping, and resizing."""

from __future__ import annotations

from typing import Any

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.identity import reshape, reshape_shape
from mobileprep.ops.array.slicing import concatenated_shape
from mobileprep.ops.arrays import axis_of, check_allocation, integers, scalar
from mobileprep.ops.image.resize import bilinear_flops, resize_shape
from mobileprep.ops.kernel import free, kernel
from mobileprep.ops.numerics.quantization import (
    EVERY_BYTE,
    Dequantizer,
    Limits,
    Quantizer,
    looked_up,
)
from mobileprep.ops.numerics.resizing import Sampling, neighbors, resize_bilinear
from mobileprep.ops.quantized.ranges import Quantized, check_type, limits_of, same_range, with_range
from mobileprep.ops.shape_function import OutputShapes, ShapeArgs, shape_fn


@kernel("QuantizedConcat", flops=free)
def quantized_concat(node: Node, axis: Array, *rest: Array) -> Quantized:
    """Concatenate tensors along an axis, in a range that covers all of theirs.

    Args:
        axis: the axis, counted from the front.
        rest: N tensors, the low ends of their ranges, and the high ends.
    """
    along = scalar(axis)
    if along < 0:
        message = f"the axis {along} is not counted from the front"
        raise ValueError(message)
    return _joined(node, rest, along, (DType.QUINT8, DType.QINT32), from_zero=False)


@shape_fn("QuantizedConcat")
def quantized_concat_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of the inputs concatenated along an axis, and the range's shapes."""
    count = args.node.attr_int("N")
    return [concatenated_shape(args.shapes[1 : count + 1], args.scalar(0)), (), ()]


@kernel("QuantizedConcatV2", flops=free)
def quantized_concat_v2(node: Node, *inputs: Array) -> Quantized:
    """Concatenate like ``quantized_concat``, with the axis after the tensors, possibly negative.

    TensorFlow 2 runs this op with oneDNN: unless all ranges are equal, that of unsigned numbers
    starts at zero.
    """
    count = node.attr_int("N")
    if len(inputs) != 3 * count + 1:
        message = f"{count} tensors need {3 * count + 1} inputs, and have {len(inputs)}"
        raise ValueError(message)
    axis = axis_of(scalar(inputs[count]), inputs[0].ndim)
    rest = (*inputs[:count], *inputs[count + 1 :])
    return _joined(node, rest, axis, (DType.QUINT8, DType.QINT8), from_zero=True)


@shape_fn("QuantizedConcatV2")
def quantized_concat_v2_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of the inputs concatenated along an axis, and the range's shapes."""
    count = args.node.attr_int("N")
    return [concatenated_shape(args.shapes[:count], args.scalar(count)), (), ()]


def _joined(
    node: Node, rest: tuple[Array, ...], axis: int, types: tuple[DType, ...], *, from_zero: bool
) -> Quantized:
    count = node.attr_int("N")
    if count < 1 or len(rest) != 3 * count:
        message = f"{count} tensors need as many range limits, but {len(rest) - count} are inputs"
        raise ValueError(message)
    parts = rest[:count]
    for part in parts:
        check_type(node, "T", part, *types)
    ends = zip(rest[count : 2 * count], rest[2 * count :], strict=True)
    ranges = [limits_of(*pair) for pair in ends]
    signed = parts[0].dtype.kind == "i"
    if from_zero and len(set(ranges)) == 1 and parts[0].ndim == 4:
        return np.concatenate(parts, axis=axis), *ranges[0].outputs()
    common = _common_range(ranges, signed=signed, from_zero=from_zero)
    # TensorFlow skips empty tensors, but not their ranges, which other tensors then use.
    following = iter(ranges)
    moved = [_in_range(part, next(following), common) if part.size else part for part in parts]
    return np.concatenate(moved, axis=axis), *common.outputs()


def _common_range(ranges: list[Limits], *, signed: bool, from_zero: bool) -> Limits:
    """Return the range that covers zero and all ranges; symmetric for signed numbers."""
    low, high = np.float32(0), np.finfo(np.float32).min
    for of in ranges:
        low = of.low if of.low < low else low
        high = of.high if high < of.high else high
    if signed:
        largest = np.float32(abs(high) if abs(low) < abs(high) else abs(low))
        return Limits(-largest, largest)
    return Limits(np.float32(0 if from_zero else low), np.float32(high))


def _in_range(values: Array, of: Limits, target: Limits) -> Array:
    if (of.low, of.high) == (target.low, target.high):
        return values
    quantizer, dequantizer = Quantizer.of(target, values.dtype), Dequantizer.of(of, values.dtype)
    if values.dtype.itemsize > 1:
        return quantizer(dequantizer(values))
    return looked_up(quantizer(dequantizer(EVERY_BYTE.view(values.dtype))), values)


@kernel("QuantizedReshape", shape=with_range(reshape_shape), flops=free)
def quantized_reshape(node: Node, x: Array, shape: Array, low: Array, high: Array) -> Quantized:
    """Reshape numbers and keep their range."""
    out = reshape(node, x, shape)
    assert isinstance(out, np.ndarray)
    return out, *same_range(low, high)


# Bits of the fractions of weights: as many as products have room for.
_BITS = {DType.QUINT8: 7, DType.QINT32: 30}


@kernel("QuantizedResizeBilinear", shape=with_range(resize_shape), flops=bilinear_flops)
def quantized_resize(node: Node, images: Array, size: Array, low: Array, high: Array) -> Quantized:
    """Resize images by linear interpolation in fixed-point arithmetic."""
    dtype = check_type(node, "T", images, DType.QUINT8, DType.QINT32, DType.FLOAT)
    new_size = integers(size)
    if images.ndim != 4 or len(new_size) != 2 or min(*new_size, *images.shape[1:3]) < 1:
        message = f"no size {list(new_size)} for images of shape {list(images.shape)}"
        raise ValueError(message)
    height, width = new_size
    # The pixel positions along each axis are computed even without images.
    batch, channels = max(len(images), 1), max(images.shape[3], 1)
    check_allocation((batch, height, width, channels), images.dtype)
    sampling = Sampling.of(node)
    if dtype is DType.FLOAT:
        out = resize_bilinear(images, (height, width), sampling)
    elif images.shape[1:3] == (height, width):
        out = images
    else:
        out = _resized(images, (height, width), sampling, _BITS[dtype])
    return out, *same_range(low, high)


def _resized(images: Array, size: tuple[int, int], sampling: Sampling, bits: int) -> Array:
    """Interpolate rows along the width, then pairs of rows.

    Intermediate numbers have fractional bits; half of them are dropped before the last product.
    """
    one = 1 << bits
    kind: np.dtype[Any] = np.dtype(np.int16 if bits < 8 else np.int64)
    (top, bottom, down), (left, right, across) = (
        _taps(extent, count, sampling, one, kind)
        for extent, count in zip(images.shape[1:3], size, strict=True)
    )
    used, places = np.unique(np.concatenate([top, bottom]), return_inverse=True)
    top, bottom = places.reshape(2, -1)
    # 32-bit numbers pass through single precision, like TensorFlow's integer types.
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
    """Return the pixels on both sides of each new one, and the weight of the second."""
    first, last, share = neighbors(sampling.positions(extent, count), extent)
    return first, last, (share * np.float32(one)).astype(kind)


def _cut(x: Array, one: int) -> Array:
    """Divide and truncate toward zero, like C."""
    out = x + np.where(x < 0, x.dtype.type(one - 1), x.dtype.type(0))
    out >>= x.dtype.type(one.bit_length() - 1)
    return np.asarray(out)
