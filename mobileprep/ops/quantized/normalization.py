"""Quantized normalization, by statistics of images or by given ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.linear_quantization import Quantizer
from mobileprep.numerics.quantization import (
    EVERY_BYTE,
    Limits,
    looked_up,
    to_floats,
    to_integers,
)
from mobileprep.ops.arrays import check_allocation
from mobileprep.ops.common_costs import per_output
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.nn.normalization import normalized_shape
from mobileprep.ops.quantized.ranges import (
    Quantized,
    bad_limits,
    check_output,
    check_type,
    limits_of,
    proper_limits,
    unchanged_with_range,
)
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

_UINT8, _INT32 = np.dtype(np.uint8), np.dtype(np.int32)
# What batch normalization puts out: 11 bits of fraction.
_BATCH_LIMITS = Limits(np.float32(-(1 << 20)), np.float32(1 << 20))


@kernel("QuantizedInstanceNorm")
def quantized_instance_norm(node: Node, x: Array, low: Array, high: Array) -> Quantized:
    """Each channel of each image less its mean, over its standard deviation.

    Args:
        node: gives variance_epsilon, min_separation and, with output_range_given, the range of the
            result from given_y_min to given_y_max; without it, that of its elements.
        x: uint8 [batch, height, width, channels].
        low: the low end of the range.
        high: the high end.

    Raises:
        InvalidGraphError: a range ends before it begins.
    """
    check_type(node, "T", x, DType.QUINT8)
    limits = proper_limits(node, low, high)
    if x.ndim != 4:
        message = "the input needs 4 axes"
        raise ValueError(message)
    check_allocation(x.shape, np.dtype(np.float32))
    given = _given_range(node)
    scale = np.float32(limits.span / np.float32(255))
    mean = _mean(x.astype(np.float32))
    out = (x.astype(np.float32) - mean) * scale
    variance = _mean(np.square(out))
    out *= np.float32(1) / np.sqrt(variance + np.float32(node.attr_float("variance_epsilon", 1e-5)))
    begin, end = given or (out.min(initial=np.inf), out.max(initial=-np.inf))
    gap = np.float32(node.attr_float("min_separation", 1e-3))
    if np.float32(end - begin) < gap:
        end = np.float32(begin + gap)
    of = Limits(np.float32(begin), np.float32(end))
    return Quantizer.of(of, _UINT8)(out), *of.outputs()


shape_fn("QuantizedInstanceNorm")(unchanged_with_range)
flop_rule("QuantizedInstanceNorm")(per_output(6))


def _given_range(node: Node) -> tuple[np.float32, np.float32] | None:
    if not node.attr_bool("output_range_given", False):
        return None
    begin, end = (np.float32(node.attr_float(name, 0.0)) for name in ("given_y_min", "given_y_max"))
    if not begin < end:
        raise bad_limits(node, begin, end)
    return begin, end


def _mean(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean over height and width, summed column after column as the original sums."""
    batch, height, width, channels = x.shape
    columns = x.transpose(2, 1, 0, 3).reshape(width * height, batch, channels)
    total = np.add.accumulate(columns, axis=0)[-1] if len(columns) else np.zeros((batch, channels))
    mean: NDArray[np.float32] = (total / np.float32(width * height)).astype(np.float32)
    return mean.reshape(batch, 1, 1, channels)


@kernel("QuantizedBatchNormWithGlobalNormalization")
def quantized_batch_norm(node: Node, x: Array, low: Array, high: Array, *rest: Array) -> Quantized:
    """Each channel less its mean over its standard deviation, scaled and shifted.

    Args:
        node: gives variance_epsilon and scale_after_normalization.
        x: uint8 [batch, height, width, channels].
        low: the low end of its range.
        high: the high end.
        rest: means, variances, shifts and scales, uint8 [channels], each followed by both ends of
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
    # C cuts quotients towards zero, numpy towards the lower integer.
    out -= np.fmod(out, one)
    out //= one
    out += added
    return out, *_BATCH_LIMITS.outputs()


@shape_fn("QuantizedBatchNormWithGlobalNormalization")
def quantized_batch_norm_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, its channels merged with those of the statistics, and the range."""
    # Each of the five tensors is followed by both ends of its range.
    return [normalized_shape(args.shapes[0], args.shapes[3::3]), (), ()]


flop_rule("QuantizedBatchNormWithGlobalNormalization")(per_output(2))
