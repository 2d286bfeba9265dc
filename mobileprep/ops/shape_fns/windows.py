"""Shapes of ops that slide a window over an image: convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ops.dims import UNKNOWN, ShapeConflictError, merge_dim, multiply_dims, with_rank
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn
from mobileprep.ops.shape_fns.joining import padded


@dataclass(frozen=True)
class _Layout:
    """Where an image's batch, space and channels are."""

    space: tuple[int, ...]
    channel: int

    @property
    def rank(self) -> int:
        return len(self.space) + 2


def _layout(node: Node, rank: int = 4) -> _Layout:
    text = node.attr_str("data_format", "NHWC" if rank == 4 else "NDHWC")
    if text.startswith("NC"):
        return _Layout(tuple(range(2, rank)), 1)
    return _Layout(tuple(range(1, rank - 1)), rank - 1)


def _windowed(size: int, window: int, stride: int, padding: str, edges: tuple[int, int]) -> int:
    """How many windows fit into a size.

    Source: ``GetWindowedOutputSizeFromDims``.
    """
    if stride < 1:
        message = f"a stride cannot be {stride}"
        raise ShapeConflictError(message)
    if size < 0 or (window < 0 and padding != "SAME"):
        return UNKNOWN
    if padding == "SAME":
        return -(-size // stride)
    extra = sum(edges) if padding == "EXPLICIT" else 0
    count = (size + extra - window + stride) // stride
    if count < 0:
        message = f"a window of {window} does not fit into {size + extra}"
        raise ShapeConflictError(message)
    return count


def _edges(node: Node, axis: int) -> tuple[int, int]:
    listed = node.attr_ints("explicit_paddings", ())
    if len(listed) <= 2 * axis + 1:
        return 0, 0
    return listed[2 * axis], listed[2 * axis + 1]


def _slid(
    node: Node, shape: tuple[int, ...], layout: _Layout, windows: Sequence[int], channels: int
) -> tuple[int, ...]:
    """The image's shape after windows slid over it."""
    strides = node.attr_ints("strides")
    dilations = node.attr_ints("dilations", (1,) * layout.rank)
    if len(strides) != layout.rank or len(dilations) != layout.rank:
        message = f"{layout.rank} strides and dilations are needed"
        raise ShapeConflictError(message)
    padding = node.attr_str("padding")
    out = list(shape)
    out[layout.channel] = channels
    for axis, window in zip(layout.space, windows, strict=True):
        wide = window if window < 0 else (window - 1) * dilations[axis] + 1
        out[axis] = _windowed(shape[axis], wide, strides[axis], padding, _edges(node, axis))
    return tuple(out)


@shape_fn("Conv2D", "Conv3D")
def conv(args: ShapeArgs) -> Sequence[TensorShape]:
    """An image with as many channels as there are filters."""
    rank = 5 if args.node.op == "Conv3D" else 4
    layout = _layout(args.node, rank)
    shape, filters = with_rank(args.shapes[0], rank), with_rank(args.shapes[1], rank)
    depth, inputs = shape[layout.channel], filters[-2]
    if depth > 0 and inputs > 0 and depth % inputs:
        message = f"filters for {inputs} channels do not fit an image with {depth}"
        raise ShapeConflictError(message)
    return [_slid(args.node, shape, layout, filters[:-2], filters[-1])]


@shape_fn("DepthwiseConv2dNative")
def depthwise_conv(args: ShapeArgs) -> Sequence[TensorShape]:
    """An image with as many channels as it had, times the filters for each."""
    layout = _layout(args.node)
    shape, filters = with_rank(args.shapes[0], 4), with_rank(args.shapes[1], 4)
    channels = multiply_dims(merge_dim(shape[layout.channel], filters[2]), filters[3])
    return [_slid(args.node, shape, layout, filters[:2], channels)]


@shape_fn("QuantizedConv2D", "QuantizedDepthwiseConv2D")
def quantized_conv(args: ShapeArgs) -> Sequence[TensorShape]:
    """As Conv2D or DepthwiseConv2dNative, and the range of the result."""
    image = depthwise_conv(args) if "Depthwise" in args.node.op else conv(args)
    return [*image, (), ()]


@shape_fn(
    *("QuantizedConv2DAndRelu", "QuantizedConv2DPerChannel", "QuantizedConv2DWithBias"),
    "QuantizedConv2DWithBiasAndRelu",
)
def quantized_conv_by_channel(args: ShapeArgs) -> Sequence[TensorShape]:
    """As Conv2D, and ranges as the filters have them: one, or one for each channel."""
    return [*conv(args), args.shapes[-1], args.shapes[-1]]


@shape_fn(
    *("QuantizedConv2DAndReluAndRequantize", "QuantizedConv2DAndRequantize"),
    *("QuantizedConv2DWithBiasAndReluAndRequantize", "QuantizedConv2DWithBiasAndRequantize"),
)
def quantized_conv_requantized(args: ShapeArgs) -> Sequence[TensorShape]:
    """As Conv2D, and the range of the result."""
    return [*conv(args), (), ()]


@shape_fn("FusedPadConv2D", "FusedResizeAndPadConv2D")
def fused_conv(args: ShapeArgs) -> Sequence[TensorShape]:
    """As Conv2D of the padded image, whose height and width a size may replace before."""
    shape, filters = with_rank(args.shapes[0], 4), with_rank(args.shapes[-1], 4)
    if args.node.op == "FusedResizeAndPadConv2D":
        height, width = args.integers(1) or (UNKNOWN, UNKNOWN)
        shape = (shape[0], height, width, shape[3])
    shape = padded(shape, args.value(len(args.shapes) - 2))
    return [_slid(args.node, shape, _layout(args.node), filters[:2], filters[3])]


@shape_fn("Conv2DBackpropInput", "Conv3DBackpropInputV2")
def conv_input(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the first input holds."""
    rank = 5 if args.node.op.startswith("Conv3D") else 4
    return [with_rank(args.as_shape(0), rank)]


@shape_fn("DepthwiseConv2dNativeBackpropInput")
def depthwise_input(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the first input holds."""
    return [with_rank(args.as_shape(0), 4)]


@shape_fn("Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter")
def conv_filter(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the second input holds."""
    rank = 5 if args.node.op.startswith("Conv3D") else 4
    return [with_rank(args.as_shape(1), rank)]


@shape_fn("AvgPool", "MaxPool", "AvgPool3D", "MaxPool3D")
def pool(args: ShapeArgs) -> Sequence[TensorShape]:
    """The image with a result for each window."""
    return [_pooled(args)]


@shape_fn("QuantizedAvgPool", "QuantizedMaxPool")
def quantized_pool(args: ShapeArgs) -> Sequence[TensorShape]:
    """The image with a result for each window, and its range."""
    return [_pooled(args), (), ()]


@shape_fn("MaxPoolWithArgmax")
def pool_with_argmax(args: ShapeArgs) -> Sequence[TensorShape]:
    """The image with a result for each window, and where each was."""
    return [_pooled(args)] * 2


@shape_fn("MaxPoolV2")
def pool_v2(args: ShapeArgs) -> Sequence[TensorShape]:
    """As MaxPool, windows and strides given as inputs."""
    sizes, strides = args.integers(1), args.integers(2)
    shape = with_rank(args.shapes[0], 4)
    if sizes is None or strides is None or len(sizes) != 4 or len(strides) != 4:
        return [(UNKNOWN,) * 4]
    return [_pool(args.node, shape, sizes, strides)]


def _pooled(args: ShapeArgs) -> TensorShape:
    sizes = args.node.attr_ints("ksize")
    strides = args.node.attr_ints("strides")
    rank = 5 if args.node.op.endswith("3D") else 4
    if len(sizes) != rank or len(strides) != rank:
        message = f"{rank} window sizes and strides are needed"
        raise ShapeConflictError(message)
    return _pool(args.node, with_rank(args.shapes[0], rank), sizes, strides)


def _pool(
    node: Node, shape: tuple[int, ...], sizes: Sequence[int], strides: Sequence[int]
) -> tuple[int, ...]:
    layout = _layout(node, len(shape))
    padding = node.attr_str("padding")
    out = list(shape)
    # A window may also span channels, which are never padded.
    for axis in (*layout.space, layout.channel):
        edges = _edges(node, axis)
        out[axis] = _windowed(shape[axis], sizes[axis], strides[axis], padding, edges)
    return tuple(out)


@shape_fn("MaxPoolGrad")
def max_pool_grad(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape of the image that was pooled."""
    return [with_rank(args.shapes[0], 4)]


@shape_fn("AvgPoolGrad")
def avg_pool_grad(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the first input holds."""
    return [with_rank(args.as_shape(0), 4)]


@shape_fn("ExtractImagePatches")
def extract_image_patches(args: ShapeArgs) -> Sequence[TensorShape]:
    """For each window its elements as channels."""
    shape = with_rank(args.shapes[0], 4)
    sizes, strides = args.node.attr_ints("ksizes"), args.node.attr_ints("strides")
    rates, padding = args.node.attr_ints("rates"), args.node.attr_str("padding")
    wide = [(k - 1) * r + 1 for k, r in zip(sizes, rates, strict=True)]
    space = [_windowed(shape[i], wide[i], strides[i], padding, (0, 0)) for i in (1, 2)]
    return [(shape[0], *space, multiply_dims(shape[3], sizes[1] * sizes[2]))]
