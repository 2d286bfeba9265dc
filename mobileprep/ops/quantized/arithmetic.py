"""Quantized arithmetic, activations, and normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby, product
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation
from mobileprep.ops.kernel import flop_rule, kernel, per_output
from mobileprep.ops.math.arithmetic import bias_add_shape
from mobileprep.ops.nn.activations import normalized_shape
from mobileprep.ops.numerics.quantization import (
    EVERY_BYTE,
    Dequantizer,
    Limits,
    Quantizer,
    level,
    looked_up,
    offset_of_zero,
    steps_of,
    to_floats,
    to_integer,
    to_integers,
)
from mobileprep.ops.quantized.ranges import (
    Quantized,
    bad_limits,
    check_output,
    check_type,
    limits_of,
    product_limits,
    proper_limits,
    same_range,
    unchanged_with_range,
    with_range,
)
from mobileprep.ops.shape_function import OutputShapes, ShapeArgs, broadcast_binary, shape_fn

# All cases of more axes would take too long to check.
_MOST_AXES: Final = 6


class Pair(Struct, frozen=True):
    """Two operands, reshaped so that numpy broadcasts them like TensorFlow.

    Args:
        lhs: the first operand.
        rhs: the second operand.
        shape: of the result.
        alone: index of the operand that is a single number, 0 or 1; -1 for none.
    """

    lhs: Array
    rhs: Array
    shape: tuple[int, ...]
    alone: int = -1


def align(node: Node, x: Array, y: Array) -> Pair:
    """Reshape two operands for an elementwise operation.

    If the shapes differ and neither operand is a single number, TensorFlow repeats the smaller one
    as a vector along the last axes. It does so even if proper broadcasting would repeat its
    elements one by one, as for [4, 3] and [4, 1].
    """
    shape = np.broadcast_shapes(x.shape, y.shape)
    check_allocation(shape, np.dtype(np.int32))
    size = int(np.prod(shape, dtype=np.int64))
    if not size:
        empty = np.empty(0, dtype=x.dtype)
        return Pair(empty, empty, shape)
    flat = x.reshape(-1), y.reshape(-1)
    runs = _runs(x.shape, y.shape)
    if runs <= 1:
        alone = 0 if x.size == 1 else 1 if y.size == 1 else -1
        return Pair(*flat, shape, alone)
    if runs > 2 or max(x.size, y.size) < size:
        message = f"node {node.name!r}: {node.op} cannot broadcast {list(x.shape)} and "
        message += f"{list(y.shape)}"
        raise UnsupportedError(message, "give one operand the shape of the other's last axes")
    period = min(x.size, y.size)
    return Pair(flat[0].reshape(-1, period), flat[1].reshape(-1, period), shape)


def always_align(x_shape: TensorShape, y_shape: TensorShape) -> bool:
    """Return whether ``align`` accepts two shapes for all values of their unknown sizes."""
    if x_shape is None or y_shape is None:
        return False
    rank = max(len(x_shape), len(y_shape))
    if rank > _MOST_AXES:
        return False
    wide = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (x_shape, y_shape)]
    return all(map(_aligns, product(*map(_sizes, *wide))))


def _sizes(a: int, b: int) -> list[tuple[int, int]]:
    """Return the relevant sizes that two axes can have: one, and more than one."""
    if a >= 0 and b >= 0:
        return [(a, b)]
    many = max(a, b, 2)
    pairs = [(1, many), (many, 1), (many, many), (1, 1)]
    return [(p, q) for p, q in pairs if a in (-1, p) and b in (-1, q)]


def _aligns(axes: Sequence[tuple[int, int]]) -> bool:
    x, y = [a for a, _ in axes], [b for _, b in axes]
    if any(a != b and 1 not in (a, b) for a, b in axes):
        return False
    size = math.prod(map(max, axes))
    runs = _runs(x, y)
    return not size or runs <= 1 or (runs == 2 and max(math.prod(x), math.prod(y)) == size)


def _runs(x_shape: Sequence[int], y_shape: Sequence[int]) -> int:
    """Return the number of axes after merging adjacent axes with equal broadcasting."""
    rank = max(len(x_shape), len(y_shape))
    wide = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (x_shape, y_shape)]
    alike = [(a == b, a == 1) for a, b in zip(*wide, strict=True) if not a == b == 1]
    return len(list(groupby(alike, key=lambda pair: pair if not pair[0] else True)))


_UINT8, _INT32 = np.dtype(np.uint8), np.dtype(np.int32)
# Headroom above the operands: sums of biases keep 15 bits, sums of tensors 18.
_BIAS_ROOM, _SUM_ROOM = np.float32(1 << 17), np.float32(1 << 14)


@kernel("QuantizedBiasAdd", shape=with_range(bias_add_shape), flops=per_output(1))
def quantized_bias_add(
    node: Node, x: Array, bias: Array, low_x: Array, high_x: Array, low_b: Array, high_b: Array
) -> Quantized:
    """Add a bias for each slice of the last dimension."""
    dtype = check_type(node, "T1", x, DType.QUINT8, DType.QINT8)
    check_type(node, "T2", bias, dtype)
    check_output(node, "out_type", DType.QINT32)
    if x.ndim < 2 or bias.shape != x.shape[-1:] or not bias.size:
        message = f"biases of shape {list(bias.shape)} do not fit {list(x.shape)}"
        raise ValueError(message)
    check_allocation(x.shape, _INT32)
    of_x, of_bias = limits_of(low_x, high_x), limits_of(low_b, high_b)
    total = _bias_limits(of_x, of_bias)
    quantizer = Quantizer.of(total, _INT32)
    added = quantizer(Dequantizer.of(of_bias, bias.dtype)(bias))
    added += np.int32(to_integer(0.0, total, _INT32))
    table = quantizer(Dequantizer.of(of_x, x.dtype)(EVERY_BYTE.view(x.dtype)))
    out = looked_up(table, x)
    out += added
    return out, *total.outputs()


def _bias_limits(of_x: Limits, of_bias: Limits) -> Limits:
    """Return a range around zero that is much larger than both ranges."""
    largest = -of_bias.low if of_bias.high < -of_bias.low else of_bias.high
    # This order handles NaN like TensorFlow.
    for end in (-of_x.low, of_x.high):
        largest = largest if end < largest else end
    return Limits(-largest * _BIAS_ROOM, largest * _BIAS_ROOM)


@kernel("QuantizedAdd", shape=with_range(broadcast_binary), flops=per_output(1))
def quantized_add(
    node: Node, x: Array, y: Array, low_x: Array, high_x: Array, low_y: Array, high_y: Array
) -> Quantized:
    """Add x and y, with the broadcasting that TensorFlow supports."""
    _check_operands(node, x, y)
    of_x, of_y = proper_limits(node, low_x, high_x), proper_limits(node, low_y, high_y)
    ends = min(of_x.low, of_y.low), max(of_x.high, of_y.high)
    largest = max(abs(end) for end in ends) * _SUM_ROOM
    total = Limits(-largest, largest)
    pair = align(node, x, y)
    lhs = _in_range(pair.lhs, of_x, total, alone=pair.alone == 0)
    rhs = _in_range(pair.rhs, of_y, total, alone=pair.alone == 1)
    return np.add(lhs, rhs).reshape(pair.shape), *total.outputs()


@kernel("QuantizedMul", shape=with_range(broadcast_binary), flops=per_output(1))
def quantized_mul(
    node: Node, x: Array, y: Array, low_x: Array, high_x: Array, low_y: Array, high_y: Array
) -> Quantized:
    """Multiply x and y; arguments and errors as in ``quantized_add``."""
    _check_operands(node, x, y)
    of_x, of_y = proper_limits(node, low_x, high_x), proper_limits(node, low_y, high_y)
    pair = align(node, x, y)
    lhs, rhs = _less_zero(pair.lhs, of_x), _less_zero(pair.rhs, of_y)
    out = np.multiply(lhs, rhs).reshape(pair.shape)
    return out, *product_limits(of_x, of_y, _UINT8, _UINT8).outputs()


def _check_operands(node: Node, x: Array, y: Array) -> None:
    check_type(node, "T1", x, DType.QUINT8)
    check_type(node, "T2", y, DType.QUINT8)
    check_output(node, "Toutput", DType.QINT32)


def _less_zero(values: Array, limits: Limits) -> NDArray[np.int32]:
    out = values.astype(np.int32)
    out -= np.int32(offset_of_zero(limits, _UINT8))
    return out


def _in_range(values: Array, limits: Limits, total: Limits, *, alone: bool) -> NDArray[np.int32]:
    """Convert 8-bit numbers of one range to 32-bit numbers of another.

    TensorFlow converts a single number in double precision. For several numbers, it converts 0 and
    1, and interpolates the others linearly.
    """
    if alone:
        return to_integers(to_floats(values, limits), total, _INT32)
    steps = steps_of(_INT32)
    first, second = (level(float(v), total, _INT32) for v in to_floats(EVERY_BYTE[:2], limits))
    slope = np.array(second - first).astype(np.int32).astype(np.int64)
    line = EVERY_BYTE * slope + first
    return looked_up(np.clip(line, steps.lowest, steps.highest).astype(np.int32), values)


@kernel("QuantizedRelu", "QuantizedRelu6", shape=unchanged_with_range)
def quantized_relu(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """Clip x to the quantized 0.0 and, in Relu6, to the quantized 6.0."""
    dtype = check_type(node, "Tinput", x, DType.QUINT8, DType.QINT32)
    check_type(node, "out_type", x, dtype)
    limits = limits_of(low, high)
    least = to_integer(0.0, limits, x.dtype)
    most = to_integer(6.0, limits, x.dtype) if node.op == "QuantizedRelu6" else None
    kind = x.dtype.type
    out = np.clip(x, kind(least), kind(steps_of(x.dtype).highest if most is None else most))
    return np.asarray(out), *same_range(low, high)


shape_fn("QuantizedReluX")(unchanged_with_range)
flop_rule("QuantizedRelu")(per_output(1))
flop_rule("QuantizedRelu6")(per_output(2))


# The output range of batch normalization: 11 bits of fraction.
_BATCH_LIMITS = Limits(np.float32(-(1 << 20)), np.float32(1 << 20))


@kernel("QuantizedInstanceNorm", shape=unchanged_with_range, flops=per_output(6))
def quantized_instance_norm(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """Normalize each channel of each image by its mean and standard deviation.

    Args:
        node: with variance_epsilon, min_separation and, with output_range_given, the range of the
            result from given_y_min to given_y_max; without it, that of its elements.
        x: uint8 [batch, height, width, channels].
    """
    check_type(node, "T", x, DType.QUINT8)
    limits = proper_limits(node, low, high)
    if x.ndim != 4:
        message = "the input needs 4 axes"
        raise ValueError(message)
    check_allocation(x.shape, np.dtype(np.float32))
    ends = _given_range(node)
    scale = np.float32(limits.span / np.float32(255))
    mean = _mean(x.astype(np.float32))
    out = (x.astype(np.float32) - mean) * scale
    variance = _mean(np.square(out))
    out *= np.float32(1) / np.sqrt(variance + np.float32(node.attr_float("variance_epsilon", 1e-5)))
    begin, end = ends or (out.min(initial=np.inf), out.max(initial=-np.inf))
    gap = np.float32(node.attr_float("min_separation", 1e-3))
    if np.float32(end - begin) < gap:
        end = np.float32(begin + gap)
    of = Limits(np.float32(begin), np.float32(end))
    return Quantizer.of(of, _UINT8)(out), *of.outputs()


def _given_range(node: Node) -> tuple[np.float32, np.float32] | None:
    if not node.attr_bool("output_range_given", False):
        return None
    begin, end = (np.float32(node.attr_float(name, 0.0)) for name in ("given_y_min", "given_y_max"))
    if not begin < end:
        raise bad_limits(node, begin, end)
    return begin, end


def _mean(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Compute the mean over height and width, summed column by column like TensorFlow."""
    batch, height, width, channels = x.shape
    columns = x.transpose(2, 1, 0, 3).reshape(width * height, batch, channels)
    total = np.add.accumulate(columns, axis=0)[-1] if len(columns) else np.zeros((batch, channels))
    mean: NDArray[np.float32] = (total / np.float32(width * height)).astype(np.float32)
    return mean.reshape(batch, 1, 1, channels)


@kernel("QuantizedBatchNormWithGlobalNormalization", flops=per_output(2))
def quantized_batch_norm(node: Node, x: Array, low: Array, high: Array, *rest: Array) -> Quantized:
    """Normalize each channel by its mean and standard deviation, then scale and shift it.

    Args:
        x: uint8 [batch, height, width, channels].
        rest: means, variances, shifts, and scales, uint8 [channels], each followed by both ends of
            its range.
    """
    check_type(node, "Tinput", x, DType.QUINT8)
    check_output(node, "out_type", DType.QINT32)
    if len(rest) != 12 or x.ndim != 4 or any(v.shape != x.shape[3:] for v in rest[::3]):
        message = f"statistics do not fit an input of shape {list(x.shape)}"
        raise ValueError(message)
    for values in rest[::3]:
        check_type(node, "Tinput", values, DType.QUINT8)
    check_allocation(x.shape, _INT32)
    mean, variance, beta, gamma = (
        to_floats(rest[i], limits_of(rest[i + 1], rest[i + 2])) for i in range(0, 12, 3)
    )
    spread = np.sqrt(variance + np.float32(node.attr_float("variance_epsilon")))
    scale = np.float32(1) / spread
    if node.attr_bool("scale_after_normalization"):
        scale *= gamma
    shift = -mean * scale + beta
    factors, added = (to_integers(v, _BATCH_LIMITS, _INT32) for v in (scale, shift))
    one = to_integers(np.float32(1), _BATCH_LIMITS, _INT32)
    table = to_integers(to_floats(EVERY_BYTE, limits_of(low, high)), _BATCH_LIMITS, _INT32)
    out = looked_up(table, x) * factors
    # C truncates quotients toward zero, numpy rounds down.
    out -= np.fmod(out, one)
    out //= one
    out += added
    return out, *_BATCH_LIMITS.outputs()


@shape_fn("QuantizedBatchNormWithGlobalNormalization")
def quantized_batch_norm_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape, its channels merged with the statistics, and the range's shapes."""
    # Each of the five tensors is followed by both ends of its range.
    return [normalized_shape(args.shapes[0], args.shapes[3::3]), (), ()]
