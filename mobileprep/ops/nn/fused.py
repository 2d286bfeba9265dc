"""Fused ops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from mobileprep.errors import UnsupportedError
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.blocks import padded_shape
from mobileprep.ops.cost import Sizes, UnknownCostError, flop_rule
from mobileprep.ops.image.resize import given_size
from mobileprep.ops.kernel import call_kernel, find_kernel, kernel
from mobileprep.ops.math.products import matmul_shape, matrix_product_flops
from mobileprep.ops.nn.activations import batch_norm_flops, fused_batch_norm_shape
from mobileprep.ops.nn.conv import (
    convolution_flops,
    convolved_shape,
    depthwise_conv_shape,
    depthwise_flops,
)
from mobileprep.ops.nn.window_shapes import image_layout, slid
from mobileprep.ops.shape_function import OutputShapes, ShapeArgs, shape_fn, with_rank

_ACTIVATIONS = ("Elu", "LeakyRelu", "Relu", "Relu6", "Sigmoid", "Tanh")


def _activated(name: str, node: Node, x: Array) -> Array:
    if name == "LeakyRelu":
        node = node.with_attrs(alpha=attr.floating(node.attr_float("leakyrelu_alpha", 0.2)))
    return _run(name, node, x)


def _run(op: str, node: Node, *inputs: Array) -> Array:
    """Return the first output of another op with this node's attributes."""
    return _run_all(op, node, *inputs)[0]


def _run_all(op: str, node: Node, *inputs: Array) -> tuple[Array, ...]:
    run = find_kernel(op)
    if run is None:
        message = f"the op {op!r} cannot be run here"
        raise ValueError(message)
    return call_kernel(run, replace(node, op=op), list(inputs))


def _finished(node: Node, x: Array, args: Sequence[Array]) -> Array:
    """Apply the ops in the attribute ``fused_ops`` to x."""
    remaining = list(args)
    for name in (op.decode() for op in node.attr_strings("fused_ops")):
        if name in ("BiasAdd", "Add"):
            x = (
                np.add(x, remaining.pop(0))
                if name == "Add"
                else _run("BiasAdd", node, x, remaining.pop(0))
            )
        elif name == "FusedBatchNorm":
            statistics, remaining = remaining[:4], remaining[4:]
            inference = node.with_attrs(is_training=attr.boolean(False))
            x = _run("FusedBatchNorm", inference, x, *statistics)
        elif name in _ACTIVATIONS:
            x = _activated(name, node, x)
        else:
            message = f"the fused op {name!r} is not known"
            raise ValueError(message)
    return x


def _filter_axes(node: Node) -> tuple[int, ...]:
    """Return the axes of height, width, inputs, and outputs of filters; empty for other ranks."""
    order = node.attr_str("filter_format", "HWIO")
    return tuple(map(order.index, "HWIO")) if len(order) == len("HWIO") else ()


@kernel("_FusedConv2D")
def fused_conv_2d(node: Node, x: Array, filters: Array, *args: Array) -> Array:
    """Compute a convolution with bias or batch normalization, and activation."""
    axes = _filter_axes(node)
    if not axes:
        message = f"filters in the order {node.attr_str('filter_format')} cannot be run here"
        raise UnsupportedError(message, "HWIO and OIHW can")
    return _finished(node, _run("Conv2D", node, x, filters.transpose(axes)), args)


@shape_fn("_FusedConv2D")
def fused_conv_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of ``Conv2D`` with filters in the order of ``filter_format``."""
    axes = _filter_axes(args.node)
    filters = with_rank(args.shapes[1] if axes else None, 4)
    ordered = tuple(filters[axis] for axis in axes) or filters
    return [convolved_shape(args.node, with_rank(args.shapes[0], 4), ordered)]


@flop_rule("_FusedConv2D")
def fused_conv_flops(sizes: Sizes) -> float:
    """Count ``Conv2D`` and the fused ops."""
    axes, filters = _filter_axes(sizes.node), sizes.input(1)
    if not axes:
        raise UnknownCostError
    ordered = tuple(filters[axis] for axis in axes)
    return convolution_flops(replace(sizes, inputs=(sizes.inputs[0], ordered, *sizes.inputs[2:])))


@kernel("_FusedDepthwiseConv2dNative", shape=depthwise_conv_shape, flops=depthwise_flops)
def fused_depthwise_conv(node: Node, x: Array, filters: Array, *args: Array) -> Array:
    """Compute a depthwise convolution with bias or batch normalization, and activation."""
    return _finished(node, _run("DepthwiseConv2dNative", node, x, filters), args)


@kernel("_FusedMatMul", shape=matmul_shape, flops=matrix_product_flops)
def fused_mat_mul(node: Node, x: Array, y: Array, *args: Array) -> Array:
    """Compute a matrix product with bias and activation."""
    return _finished(node, _run("MatMul", node, x, y), args)


@kernel("_FusedBatchNormEx", shape=fused_batch_norm_shape, flops=batch_norm_flops)
def fused_batch_norm_ex(
    node: Node,
    x: Array,
    scale: Array,
    offset: Array,
    mean: Array,
    variance: Array,
    *side: Array,
) -> tuple[Array, ...]:
    """Compute a batch normalization followed by a sum and an activation."""
    y, *rest = _run_all("FusedBatchNormV3", node, x, scale, offset, mean, variance)
    for other in side:
        y = np.add(y, other)
    mode = node.attr_str("activation_mode", "Identity")
    if mode != "Identity":
        y = _activated(mode, node, y)
    return (y, *rest)


@kernel("FusedPadConv2D")
def fused_pad_conv_2d(node: Node, x: Array, paddings: Array, filters: Array) -> Array:
    """Compute a convolution of an image with a mirrored border."""
    return _run("Conv2D", node, _run("MirrorPad", node, x, paddings), filters)


@shape_fn("FusedPadConv2D")
def padded_convolution_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of ``Conv2D`` for the padded image."""
    return [_padded_convolution(args, with_rank(args.shapes[0], 4), 1)]


@flop_rule("FusedPadConv2D")
def padded_convolution_flops(sizes: Sizes) -> float:
    """Count the convolution; the border is free."""
    return 2 * sizes.output_elements() * math.prod(sizes.input(2)[:-1])


@kernel("FusedResizeAndPadConv2D")
def fused_resize_and_pad_conv_2d(
    node: Node, x: Array, size: Array, paddings: Array, filters: Array
) -> Array:
    """Compute a convolution of an image after a bilinear resize and a mirrored border."""
    aligned = attr.boolean(node.attr_bool("resize_align_corners", False))
    resized = _run("ResizeBilinear", node.with_attrs(align_corners=aligned), x, size)
    resized = resized.astype(x.dtype, copy=False)
    return _run("Conv2D", node, _run("MirrorPad", node, resized, paddings), filters)


@shape_fn("FusedResizeAndPadConv2D")
def resized_convolution_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape of ``Conv2D`` for the resized and padded image."""
    batch, _, _, channels = with_rank(args.shapes[0], 4)
    return [_padded_convolution(args, (batch, *given_size(args, 1), channels), 2)]


@flop_rule("FusedResizeAndPadConv2D")
def resized_convolution_flops(sizes: Sizes) -> float:
    """Count the convolution; the shapes do not determine the size of the resized image."""
    return 2 * sizes.output_elements() * math.prod(sizes.input(3)[:-1])


def _padded_convolution(args: ShapeArgs, image: tuple[int, ...], paddings: int) -> TensorShape:
    """Return the shape of an image padded by one input, convolved with the filters of the next."""
    filters = with_rank(args.shapes[paddings + 1], 4)
    padded = padded_shape(image, args.value(paddings))
    return slid(args.node, padded, image_layout(args.node), filters[:2], filters[3])
