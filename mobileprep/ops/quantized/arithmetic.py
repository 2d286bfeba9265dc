"""Quantized sums and products of elements: 8-bit operands, 32-bit results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.linear_quantization import Dequantizer, Quantizer
from mobileprep.numerics.quantization import (
    EVERY_BYTE,
    Limits,
    level,
    looked_up,
    offset_of_zero,
    steps_of,
    to_floats,
    to_integer,
    to_integers,
)
from mobileprep.ops.arrays import check_allocation
from mobileprep.ops.common_costs import per_output
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import broadcast
from mobileprep.ops.kernel import kernel
from mobileprep.ops.math.arithmetic import bias_add_shape
from mobileprep.ops.quantized.alignment import align
from mobileprep.ops.quantized.ranges import (
    Quantized,
    check_output,
    check_type,
    limits_of,
    product_limits,
    proper_limits,
)
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

_UINT8, _INT32 = np.dtype(np.uint8), np.dtype(np.int32)
# Room above the operands: sums of biases keep 15 bits, sums of tensors 18.
_BIAS_ROOM, _SUM_ROOM = np.float32(1 << 17), np.float32(1 << 14)


@kernel("QuantizedBiasAdd")
def quantized_bias_add(
    node: Node, x: Array, bias: Array, low_x: Array, high_x: Array, low_b: Array, high_b: Array
) -> Quantized:
    """x plus a bias for each of its last dimension's slices.

    Raises:
        UnsupportedError: the original has no kernel for the types.
        ValueError: there are more or fewer biases than slices, or none.
    """
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


@shape_fn("QuantizedBiasAdd")
def quantized_bias_add_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, and two scalars."""
    return [*bias_add_shape(args), (), ()]


flop_rule("QuantizedBiasAdd")(per_output(1))


def _bias_limits(of_x: Limits, of_bias: Limits) -> Limits:
    """A range around zero that the larger of two ranges takes up a small part of."""
    largest = -of_bias.low if of_bias.high < -of_bias.low else of_bias.high
    # In this order an end that is NaN counts as it does to the original.
    for end in (-of_x.low, of_x.high):
        largest = largest if end < largest else end
    return Limits(-largest * _BIAS_ROOM, largest * _BIAS_ROOM)


@kernel("QuantizedAdd")
def quantized_add(
    node: Node, x: Array, y: Array, low_x: Array, high_x: Array, low_y: Array, high_y: Array
) -> Quantized:
    """x plus y, broadcast as far as the original can.

    Raises:
        UnsupportedError: the original has no kernel for the types, or cannot broadcast the shapes.
        InvalidGraphError: a range does not end above its beginning.
        ValueError: the shapes do not fit each other.
    """
    _check_operands(node, x, y)
    of_x, of_y = proper_limits(node, low_x, high_x), proper_limits(node, low_y, high_y)
    ends = min(of_x.low, of_y.low), max(of_x.high, of_y.high)
    largest = max(abs(end) for end in ends) * _SUM_ROOM
    total = Limits(-largest, largest)
    pair = align(node, x, y)
    left = _in_range(pair.left, of_x, total, alone=pair.alone == 0)
    right = _in_range(pair.right, of_y, total, alone=pair.alone == 1)
    return np.add(left, right).reshape(pair.shape), *total.outputs()


@kernel("QuantizedMul")
def quantized_mul(
    node: Node, x: Array, y: Array, low_x: Array, high_x: Array, low_y: Array, high_y: Array
) -> Quantized:
    """x times y; arguments and errors as of ``quantized_add``."""
    _check_operands(node, x, y)
    of_x, of_y = proper_limits(node, low_x, high_x), proper_limits(node, low_y, high_y)
    pair = align(node, x, y)
    left, right = _less_zero(pair.left, of_x), _less_zero(pair.right, of_y)
    out = np.multiply(left, right).reshape(pair.shape)
    return out, *product_limits(of_x, of_y, _UINT8, _UINT8).outputs()


@shape_fn("QuantizedAdd", "QuantizedMul")
def quantized_binary_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Two inputs broadcast to each other, and the range of the result."""
    return [broadcast(args.shapes[0], args.shapes[1]), (), ()]


flop_rule("QuantizedAdd", "QuantizedMul")(per_output(1))


def _check_operands(node: Node, x: Array, y: Array) -> None:
    check_type(node, "T1", x, DType.QUINT8)
    check_type(node, "T2", y, DType.QUINT8)
    check_output(node, "Toutput", DType.QINT32)


def _less_zero(values: Array, limits: Limits) -> NDArray[np.int32]:
    out = values.astype(np.int32)
    out -= np.int32(offset_of_zero(limits, _UINT8))
    return out


def _in_range(values: Array, limits: Limits, total: Limits, *, alone: bool) -> NDArray[np.int32]:
    """Eight-bit numbers of one range as 32-bit numbers of another.

    The original converts a single number by the rule in double precision; of many it converts the
    numbers 0 and 1, and takes the others to lie on the line through both.
    """
    if alone:
        return to_integers(to_floats(values, limits), total, _INT32)
    steps = steps_of(_INT32)
    first, second = (level(float(v), total, _INT32) for v in to_floats(EVERY_BYTE[:2], limits))
    slope = np.array(second - first).astype(np.int32).astype(np.int64)
    line = EVERY_BYTE * slope + first
    return looked_up(np.clip(line, steps.lowest, steps.highest).astype(np.int32), values)
