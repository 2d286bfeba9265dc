"""Convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import OptionValue
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.litert.arithmetic import Arithmetic, IndexArithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import (
    as_int32,
    channels_last,
    emit_as_given,
    is_channels_first,
    known_size,
    padded,
    permuted,
    reshaped,
    spatial,
    to_last,
    transposed,
)
from mobileprep.litert.types import need_float


def relaid(scope: Scope, weights: Value, form: str, order: Sequence[int]) -> Value:
    """Transpose weights, at conversion time if they are constant."""
    if weights.data is None:
        return transposed(scope, weights, order)
    turned = np.ascontiguousarray(np.transpose(weights.data, order))
    return scope.relaid(weights, form, turned)


def _by_side(name: str, numbers: Sequence[int]) -> dict[str, OptionValue]:
    """Return an option for each side of a window, such as ``stride_h`` and ``stride_w``."""
    sides = "dhw"[-len(numbers) :]
    return {name.format(side): number for side, number in zip(sides, numbers, strict=True)}


def _strides(node: Node, padding: str, rank: int = 4) -> dict[str, OptionValue]:
    """Return the options for padding and strides."""
    return {"padding": padding, **_by_side("stride_{}", spatial(node, "strides", rank))}


def _dilations(node: Node, rank: int = 4) -> dict[str, OptionValue]:
    return _by_side("dilation_{}_factor", spatial(node, "dilations", rank))


def _check_undilated(node: Node) -> None:
    if set(node.attr_ints("dilations", (1,))) != {1}:
        msg = "it is dilated"
        raise CannotExpressError(msg, "LiteRT has no dilated transposed convolution")


def _check_implicit(node: Node, hint: str) -> None:
    if node.attr_str("padding") == "EXPLICIT":
        msg = "it has explicit paddings"
        raise CannotExpressError(msg, hint)


@lowering("Conv2D")
def conv_2d(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit CONV_2D with weights [output, height, width, input]."""
    need_float(inputs)
    image, padding = padded(scope, node, channels_last(scope, node, inputs[0]))
    weights = relaid(scope, inputs[1], "OHWI", (3, 0, 1, 2))
    values = [image, weights, _no_bias(scope, weights, 0)]
    options = {**_strides(node, padding), **_dilations(node)}
    return emit_as_given(scope, node, "CONV_2D", values, DType.FLOAT, **options)


def _no_bias(scope: Scope, weights: Value, axis: int) -> Value | None:
    """Return a bias of zeros, which convolutions and older runtimes require."""
    if weights.shape is None:
        return None
    if weights.shape[axis] < 0:
        work = IndexArithmetic(scope)
        sizes = work.joined([work.sizes(weights)[axis]])
        zero = scope.constant(np.float32(0))
        return scope.emit("FILL", [sizes, zero], (-1,), DType.FLOAT)
    return scope.constant(np.zeros(weights.shape[axis], np.float32), "bias")


@lowering("DepthwiseConv2dNative")
def depthwise_conv_2d(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit DEPTHWISE_CONV_2D with weights [1, height, width, output].

    TensorFlow's weights are [height, width, input, multiplier].
    """
    need_float(inputs)
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
    values = [image, weights, _no_bias(scope, weights, 3)]
    options = {**_strides(node, padding), "depth_multiplier": multiplier, **_dilations(node)}
    return emit_as_given(scope, node, "DEPTHWISE_CONV_2D", values, DType.FLOAT, **options)


@lowering("Conv2DBackpropInput")
def transpose_conv(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit TRANSPOSE_CONV with weights [output, height, width, input].

    TensorFlow's weights are [height, width, output, input].
    """
    need_float(inputs[1:])
    _check_implicit(node, "use SAME or VALID, and crop")
    _check_undilated(node)
    sizes = _output_sizes(scope, node, inputs[0])
    image = channels_last(scope, node, inputs[2])
    weights = relaid(scope, inputs[1], "transposed OHWI", (2, 0, 1, 3))
    values = [sizes, weights, image]
    options = _strides(node, node.attr_str("padding"))
    return emit_as_given(scope, node, "TRANSPOSE_CONV", values, DType.FLOAT, **options)


def _output_sizes(scope: Scope, node: Node, sizes: Value, rank: int = 4) -> Value:
    """Return the sizes of a transposed convolution's output, channels last."""
    if not is_channels_first(node):
        return sizes
    constant = scope.integers(node, 0, "output sizes")
    return scope.integers_constant(permuted(constant, to_last(rank)) or (), "output_sizes")


@lowering("Conv3D")
def conv_3d(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit CONV_3D, whose weights have the same order as in TensorFlow."""
    need_float(inputs)
    _check_implicit(node, "use SAME or VALID, and pad before it")
    values = [channels_last(scope, node, inputs[0], 5), inputs[1]]
    options = {**_strides(node, node.attr_str("padding"), 5), **_dilations(node, 5)}
    return emit_as_given(scope, node, "CONV_3D", values, DType.FLOAT, 5, **options)


@lowering("Conv3DBackpropInputV2")
def transpose_conv_3d(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit CONV_3D_TRANSPOSE, whose weights have the same order as in TensorFlow."""
    need_float(inputs[1:])
    _check_undilated(node)
    sizes = _output_sizes(scope, node, as_int32(scope, node, 0, inputs[0]), 5)
    values = [sizes, inputs[1], channels_last(scope, node, inputs[2], 5)]
    dilations = _by_side("dilation_{}_factor", (1, 1, 1))
    options = {**_strides(node, node.attr_str("padding"), 5), **dilations}
    return emit_as_given(scope, node, "CONV_3D_TRANSPOSE", values, DType.FLOAT, 5, **options)


@lowering("MatMul")
def matmul(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit FULLY_CONNECTED with weights [output, input], or BATCH_MATMUL if they are computed."""
    need_float(inputs)
    lhs, rhs = inputs
    turned = node.attr_bool("transpose_a", False), node.attr_bool("transpose_b", False)
    shape = scope.output_shape(node)
    if rhs.data is None:
        return _product(scope, lhs, rhs, shape, turned)
    rows = transposed(scope, lhs, (1, 0)) if turned[0] else lhs
    return _dense(scope, rows, rhs if turned[1] else relaid(scope, rhs, "OI", (1, 0)), shape)


def matrix_product(scope: Scope, lhs: Value, rhs: Value, shape: TensorShape) -> Value:
    """Multiply matrices, or batches of them, with FULLY_CONNECTED if possible."""
    if rhs.data is None or rhs.data.ndim != 2:
        return _product(scope, lhs, rhs, shape)
    return _dense(scope, lhs, relaid(scope, rhs, "OI", (1, 0)), shape)


def _dense(scope: Scope, rows: Value, weights: Value, shape: TensorShape) -> Value:
    values = [rows, weights, _no_bias(scope, weights, 0)]
    return scope.emit("FULLY_CONNECTED", values, shape)


@lowering("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
def batch_matmul(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit BATCH_MATMUL; products of 8-bit integers are computed in float32 if that is exact."""
    turned = node.attr_bool("adj_x", False), node.attr_bool("adj_y", False)
    if {value.dtype for value in inputs} <= _LARGEST.keys():
        return _integer_product(scope, node, inputs, turned)
    need_float(inputs)
    return _product(scope, inputs[0], inputs[1], scope.output_shape(node), turned)


# The largest magnitude of each integer type.
_LARGEST: Final = {DType.INT8: 1 << 7, DType.UINT8: (1 << 8) - 1}
# Integers up to this magnitude are exact in float32.
_EXACT: Final = 1 << 24


def _integer_product(
    scope: Scope, node: Node, inputs: Sequence[Value], turned: tuple[bool, bool]
) -> Value:
    lhs, rhs = inputs
    depth = known_size(lhs, -2 if turned[0] else -1)
    largest = depth * _LARGEST[lhs.dtype] * _LARGEST[rhs.dtype]
    if largest > _EXACT:
        reason = f"its sums of {depth} products may exceed 2**24, where float32 is exact"
        raise CannotExpressError(reason, "cast its inputs to float32, or split the product")
    work, shape = Arithmetic(scope), scope.output_shape(node)
    floats = [work.cast(value, DType.FLOAT) for value in inputs]
    product = _product(scope, floats[0], floats[1], shape, turned)
    return work.cast(product, node.attr_dtype("Tout", lhs.dtype))


def _product(
    scope: Scope,
    lhs: Value,
    rhs: Value,
    shape: TensorShape,
    turned: tuple[bool, bool] = (False, False),
) -> Value:
    return scope.emit("BATCH_MATMUL", [lhs, rhs], shape, adj_x=turned[0], adj_y=turned[1])
