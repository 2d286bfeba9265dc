"""Convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.litert.arithmetic import Arithmetic, IndexArithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import (
    as_given,
    as_int32,
    channels_last,
    is_channels_first,
    known_size,
    last_shape,
    padded,
    permuted,
    reshaped,
    spatial,
    transposed,
)
from mobileprep.litert.types import need_float


def relaid(scope: Scope, weights: Value, form: str, order: Sequence[int]) -> Value:
    """Transpose weights, at conversion time if they are constant."""
    if weights.data is None:
        return transposed(scope, weights, order)
    turned = np.ascontiguousarray(np.transpose(weights.data, order))
    return scope.relaid(weights, form, turned)


@lowering("Conv2D")
def conv_2d(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit CONV_2D with weights [output, height, width, input]."""
    need_float(node, inputs)
    image, padding = padded(scope, node, channels_last(scope, node, inputs[0]))
    weights = relaid(scope, inputs[1], "OHWI", (3, 0, 1, 2))
    strides, dilations = spatial(node, "strides"), spatial(node, "dilations")
    shape = last_shape(node, scope.output_shape(node))
    done = scope.emit(
        "CONV_2D",
        [image, weights, _no_bias(scope, weights, 0)],
        shape,
        inputs[0].dtype,
        "Conv2DOptions",
        padding=padding,
        stride_h=strides[0],
        stride_w=strides[1],
        dilation_h_factor=dilations[0],
        dilation_w_factor=dilations[1],
    )
    return as_given(scope, node, done)


def _no_bias(scope: Scope, weights: Value, axis: int) -> Value | None:
    """Return a bias of zeros, which convolutions and older runtimes require."""
    if weights.shape is None:
        return None
    if weights.shape[axis] < 0:
        work = IndexArithmetic(scope)
        sizes = work.joined([work.sizes(weights)[axis]])
        zero = scope.constant(np.float32(0))
        return scope.emit("FILL", [sizes, zero], (-1,), DType.FLOAT, "FillOptions")
    return scope.constant(np.zeros(weights.shape[axis], np.float32), "bias")


@lowering("DepthwiseConv2dNative")
def depthwise_conv_2d(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit DEPTHWISE_CONV_2D with weights [1, height, width, output].

    TensorFlow's weights are [height, width, input, multiplier].
    """
    need_float(node, inputs)
    image, padding = padded(scope, node, channels_last(scope, node, inputs[0]))
    filters = inputs[1]
    if filters.shape is None or min(filters.shape) < 0:
        msg = "the shape of its filter is not known"
        raise CannotExpressError(msg, "make it a constant")
    height, width, channels, multiplier = filters.shape
    flat = (1, height, width, channels * multiplier)
    if filters.data is None:
        weights = reshaped(scope, filters, flat)
    else:
        weights = scope.relaid(filters, "1HWO", filters.data.reshape(flat))
    strides, dilations = spatial(node, "strides"), spatial(node, "dilations")
    done = scope.emit(
        "DEPTHWISE_CONV_2D",
        [image, weights, _no_bias(scope, weights, 3)],
        last_shape(node, scope.output_shape(node)),
        image.dtype,
        "DepthwiseConv2DOptions",
        padding=padding,
        stride_h=strides[0],
        stride_w=strides[1],
        depth_multiplier=multiplier,
        dilation_h_factor=dilations[0],
        dilation_w_factor=dilations[1],
    )
    return as_given(scope, node, done)


@lowering("Conv2DBackpropInput")
def transpose_conv(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit TRANSPOSE_CONV with weights [output, height, width, input].

    TensorFlow's weights are [height, width, output, input].
    """
    need_float(node, inputs[1:])
    if node.attr_str("padding") == "EXPLICIT":
        msg = "it has explicit paddings"
        raise CannotExpressError(msg, "use SAME or VALID, and crop")
    if set(node.attr_ints("dilations", (1,))) != {1}:
        msg = "it is dilated"
        raise CannotExpressError(msg, "LiteRT has no dilated transposed convolution")
    sizes = _output_sizes(scope, node, inputs[0])
    image = channels_last(scope, node, inputs[2])
    weights = relaid(scope, inputs[1], "transposed OHWI", (2, 0, 1, 3))
    strides = spatial(node, "strides")
    done = scope.emit(
        "TRANSPOSE_CONV",
        [sizes, weights, image],
        last_shape(node, scope.output_shape(node)),
        image.dtype,
        "TransposeConvOptions",
        padding=node.attr_str("padding"),
        stride_h=strides[0],
        stride_w=strides[1],
    )
    return as_given(scope, node, done)


def _output_sizes(scope: Scope, node: Node, sizes: Value) -> Value:
    """Return the sizes of a transposed convolution's output, channels last."""
    if not is_channels_first(node):
        return sizes
    constant = scope.integers(node, 0, "output sizes")
    return scope.integers_constant(permuted(constant, (0, 2, 3, 1)) or (), "output_sizes")


@lowering("Conv3D")
def conv_3d(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit CONV_3D, whose weights have the same order as in TensorFlow."""
    need_float(node, inputs)
    if node.attr_str("padding") == "EXPLICIT":
        msg = "it has explicit paddings"
        raise CannotExpressError(msg, "use SAME or VALID, and pad before it")
    image = channels_last(scope, node, inputs[0], 5)
    strides, dilations = spatial(node, "strides", 5), spatial(node, "dilations", 5)
    done = scope.emit(
        "CONV_3D",
        [image, inputs[1]],
        last_shape(node, scope.output_shape(node), 5),
        image.dtype,
        "Conv3DOptions",
        padding=node.attr_str("padding"),
        stride_d=strides[0],
        stride_h=strides[1],
        stride_w=strides[2],
        dilation_d_factor=dilations[0],
        dilation_h_factor=dilations[1],
        dilation_w_factor=dilations[2],
    )
    return as_given(scope, node, done, 5)


@lowering("Conv3DBackpropInputV2")
def transpose_conv_3d(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit CONV_3D_TRANSPOSE, whose weights have the same order as in TensorFlow."""
    need_float(node, inputs[1:])
    if set(node.attr_ints("dilations", (1,))) != {1}:
        msg = "it is dilated"
        raise CannotExpressError(msg, "LiteRT has no dilated transposed convolution")
    sizes = as_int32(scope, node, 0, inputs[0])
    if is_channels_first(node):
        constant = scope.integers(node, 0, "output sizes")
        sizes = scope.integers_constant(permuted(constant, (0, 2, 3, 4, 1)) or (), "output_sizes")
    image = channels_last(scope, node, inputs[2], 5)
    strides = spatial(node, "strides", 5)
    done = scope.emit(
        "CONV_3D_TRANSPOSE",
        [sizes, inputs[1], image],
        last_shape(node, scope.output_shape(node), 5),
        image.dtype,
        "Conv3DOptions",
        padding=node.attr_str("padding"),
        stride_d=strides[0],
        stride_h=strides[1],
        stride_w=strides[2],
        dilation_d_factor=1,
        dilation_h_factor=1,
        dilation_w_factor=1,
    )
    return as_given(scope, node, done, 5)


@lowering("MatMul")
def matmul(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit FULLY_CONNECTED with weights [output, input], or BATCH_MATMUL if they are computed."""
    need_float(node, inputs)
    left, right = inputs
    turned = node.attr_bool("transpose_a", False), node.attr_bool("transpose_b", False)
    shape = scope.output_shape(node)
    if right.data is None:
        return _product(scope, left, right, turned, shape)
    rows = transposed(scope, left, (1, 0)) if turned[0] else left
    return _dense(scope, rows, right if turned[1] else relaid(scope, right, "OI", (1, 0)), shape)


def matrix_product(scope: Scope, left: Value, right: Value, shape: TensorShape) -> Value:
    """Multiply matrices, or batches of them, with FULLY_CONNECTED if possible."""
    if right.data is None or right.data.ndim != 2:
        return _product(scope, left, right, (False, False), shape)
    return _dense(scope, left, relaid(scope, right, "OI", (1, 0)), shape)


def _dense(scope: Scope, rows: Value, weights: Value, shape: TensorShape) -> Value:
    values = [rows, weights, _no_bias(scope, weights, 0)]
    return scope.emit("FULLY_CONNECTED", values, shape, rows.dtype, "FullyConnectedOptions")


@lowering("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit BATCH_MATMUL; products of 8-bit integers are computed in float32 if that is exact."""
    turned = node.attr_bool("adj_x", False), node.attr_bool("adj_y", False)
    if {value.dtype for value in inputs} <= _LARGEST.keys():
        return _integer_product(scope, node, inputs, turned)
    need_float(node, inputs)
    return _product(scope, inputs[0], inputs[1], turned, scope.output_shape(node))


# The largest magnitude of each integer type.
_LARGEST: Final = {DType.INT8: 1 << 7, DType.UINT8: (1 << 8) - 1}
# Integers up to this magnitude are exact in float32.
_EXACT: Final = 1 << 24


def _integer_product(
    scope: Scope, node: Node, inputs: Sequence[Value], turned: tuple[bool, bool]
) -> Value:
    left, right = inputs
    depth = known_size(left, -2 if turned[0] else -1)
    largest = depth * _LARGEST[left.dtype] * _LARGEST[right.dtype]
    if largest > _EXACT:
        reason = f"its sums of {depth} products may exceed 2**24, where float32 is exact"
        raise CannotExpressError(reason, "cast its inputs to float32, or split the product")
    work, shape = Arithmetic(scope), scope.output_shape(node)
    floats = [work.cast(value, DType.FLOAT) for value in inputs]
    product = _product(scope, floats[0], floats[1], turned, shape)
    return work.cast(product, node.attr_dtype("Tout", left.dtype))


def _product(
    scope: Scope,
    left: Value,
    right: Value,
    turned: tuple[bool, bool],
    shape: tuple[int, ...] | None,
) -> Value:
    return scope.emit(
        "BATCH_MATMUL",
        [left, right],
        shape,
        left.dtype,
        "BatchMatMulOptions",
        adj_x=turned[0],
        adj_y=turned[1],
    )
