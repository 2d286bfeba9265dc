"""Shapes of ops on quantized numbers, which give the range of their result with it."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import at_least_rank
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn
from mobileprep.ops.shape_fns.array import reshape
from mobileprep.ops.shape_fns.elementwise import bias_add


@shape_fn("QuantizeV2", "Requantize", "QuantizedRelu", "QuantizedRelu6", "QuantizedReluX")
def with_range(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, and two scalars; ranges of their own for slices where there is an axis."""
    axis = args.node.attr_int("axis", -1)
    shape = args.shapes[0]
    if axis < 0:
        return [shape, (), ()]
    slices = None if shape is None else (shape[axis],)
    return [shape, slices, slices]


@shape_fn("QuantizeDownAndShrinkRange", "QuantizedInstanceNorm")
def with_scalar_range(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, and two scalars."""
    return [args.shapes[0], (), ()]


@shape_fn("Dequantize", "QuantizeAndDequantize", "QuantizeAndDequantizeV2")
def without_range(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape."""
    return [args.shapes[0]]


@shape_fn("QuantizeAndDequantizeV3", "QuantizeAndDequantizeV4")
def quantized_and_back(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape."""
    return [at_least_rank(args.shapes[0], 0)]


@shape_fn("QuantizedBiasAdd")
def quantized_bias_add(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, and two scalars."""
    return [*bias_add(args), (), ()]


@shape_fn("QuantizedReshape")
def quantized_reshape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the second input holds, and two scalars."""
    return [*reshape(args), (), ()]


@shape_fn("RequantizationRange", "RequantizationRangePerChannel")
def requantization_range(args: ShapeArgs) -> Sequence[TensorShape]:
    """Two scalars."""
    return [(), ()]


@shape_fn("RequantizePerChannel")
def requantize_per_channel(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, and two scalars."""
    return [args.shapes[0], (), ()]
