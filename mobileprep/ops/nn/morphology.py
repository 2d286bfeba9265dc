"""Grey-scale dilation, of pooling with places, and of image patches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.numerics.tiles import Tile, padded_rows, patches
from mobileprep.numerics.windows import NHWC, Window, make_window, spatial
from mobileprep.ops.arrays import same_type
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import multiply_dims, with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.nn.pooling import pool_flops
from mobileprep.ops.shape_function import ShapeArgs, shape_fn
from mobileprep.ops.window_shapes import pooled_shape, window_count


def _whole(x: Array, window: Window) -> Tile:
    return Tile(slice(0, len(x)), slice(0, window.positions(x.shape[1:-1])[0]))


def _lowest(x: Array) -> float:
    return int(np.iinfo(x.dtype).min) if x.dtype.kind in "iu" else -np.inf


@kernel("Dilation2D")
def dilation_2d(node: Node, x: Array, filters: Array) -> Array:
    """The largest sum of a pixel and its filter's element in each window."""
    same_type(node, x, filters)
    if x.ndim != 4 or filters.ndim != 3 or x.shape[-1] != filters.shape[-1]:
        message = "filters [height, width, channels] for an input of as many channels are needed"
        raise ValueError(message)
    window = make_window(
        node,
        x.shape[1:3],
        filters.shape[:2],
        spatial(node.attr_ints("strides"), NHWC),
        spatial(node.attr_ints("rates"), NHWC),
    )
    positions = window.positions(x.shape[1:3])
    source = padded_rows(x, window, _whole(x, window), _lowest(x))
    out = np.full((len(x), *positions, x.shape[-1]), _lowest(x), dtype=x.dtype)
    for i, j in np.ndindex(*filters.shape[:2]):
        rows, columns = (
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip((i, j), window.dilations, positions, window.strides, strict=True)
        )
        np.maximum(out, source[:, rows, columns] + filters[i, j], out=out)
    return out


@flop_rule("Dilation2D")
def dilation_flops(sizes: Sizes) -> float:
    """An addition and a comparison for each element of the filter, for each output."""
    return 2 * sizes.made() * math.prod(sizes.input(1)[:2])


@kernel("MaxPoolWithArgmax")
def max_pool_with_argmax(node: Node, x: Array) -> tuple[Array, Array]:
    """The largest element of each window, and its place in the flattened image (or batch)."""
    if x.ndim != 4:
        message = "four axes are needed"
        raise ValueError(message)
    size = spatial(node.attr_ints("ksize"), NHWC)
    strides = spatial(node.attr_ints("strides"), NHWC)
    window = make_window(node, x.shape[1:3], size, strides, (1, 1))
    positions = window.positions(x.shape[1:3])
    numbers = np.arange(x[:1].size, dtype=np.int64).reshape(1, *x.shape[1:])
    if node.attr_bool("include_batch_in_index", False):
        numbers = numbers + np.arange(len(x)).reshape(-1, 1, 1, 1) * x[:1].size
    numbers = np.broadcast_to(numbers, x.shape)
    whole = _whole(x, window)
    shape = (len(x), *positions, -1, x.shape[-1])
    values = _windows(padded_rows(x, window, whole, _lowest(x)), window, positions).reshape(shape)
    places = _windows(padded_rows(numbers, window, whole, -1), window, positions).reshape(shape)
    # Padding is as low as the lowest element: it must not win against one.
    best = np.argmax(np.where(places >= 0, values, _lowest(x)), axis=-2)
    first = np.argmax(places >= 0, axis=-2)
    at = np.where(np.take_along_axis(places, best[..., None, :], -2)[..., 0, :] < 0, first, best)
    kind = node.attrs.get("Targmax")
    found = np.take_along_axis(places, at[..., None, :], axis=-2)[..., 0, :]
    chosen = np.take_along_axis(values, at[..., None, :], axis=-2)[..., 0, :]
    return chosen, found.astype(np.int64 if kind is None else kind.value.numpy)


@shape_fn("MaxPoolWithArgmax")
def pool_with_argmax_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The image with a result for each window, and where each was."""
    return [pooled_shape(args)] * 2


flop_rule("MaxPoolWithArgmax")(pool_flops)


def _windows(source: Array, window: Window, positions: tuple[int, ...]) -> Array:
    bare = Window(window.size, window.strides, window.dilations, ((0, 0),) * len(positions))
    tile = Tile(slice(0, len(source)), slice(0, positions[0]))
    return patches(source, bare, tile, positions)


@kernel("ExtractImagePatches")
def extract_image_patches(node: Node, x: Array) -> Array:
    """The pixels of each window, one after the other along the last axis."""
    if x.ndim != 4:
        message = "four axes are needed"
        raise ValueError(message)
    window = make_window(
        node,
        x.shape[1:3],
        spatial(node.attr_ints("ksizes"), NHWC),
        spatial(node.attr_ints("strides"), NHWC),
        spatial(node.attr_ints("rates"), NHWC),
    )
    positions = window.positions(x.shape[1:3])
    found = patches(x, window, _whole(x, window), positions)
    return np.ascontiguousarray(found).reshape(len(x), *positions, -1)


@shape_fn("ExtractImagePatches")
def extract_image_patches_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """For each window its elements as channels."""
    shape = with_rank(args.shapes[0], 4)
    sizes, strides = args.node.attr_ints("ksizes"), args.node.attr_ints("strides")
    rates, padding = args.node.attr_ints("rates"), args.node.attr_str("padding")
    wide = [(k - 1) * r + 1 for k, r in zip(sizes, rates, strict=True)]
    space = [window_count(shape[i], wide[i], strides[i], padding, (0, 0)) for i in (1, 2)]
    return [(shape[0], *space, multiply_dims(shape[3], sizes[1] * sizes[2]))]


flop_rule("ExtractImagePatches")(free)
