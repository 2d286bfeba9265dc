"""Blocks, padding, and reversal of axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import (
    axis_of,
    check_allocation,
    distinct_axes_of,
    integers,
)
from mobileprep.ops.kernel import free, kernel
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    add_dims,
    at_least_rank,
    axis_index,
    divide_dim,
    merge_dim,
    multiply_dims,
    shape_fn,
    unchanged,
    unknown_dims,
    with_rank,
)


@kernel("Tile", flops=free)
def tile(node: Node, x: Array, multiples: Array) -> Array:
    """Repeat x along each axis."""
    counts = integers(multiples)
    if len(counts) != x.ndim:
        message = f"multiples need {x.ndim} elements"
        raise ValueError(message)
    check_allocation([d * n for d, n in zip(x.shape, counts, strict=True)], x.dtype)
    return np.tile(x, counts)


@shape_fn("Tile")
def tile_shape(args: ShapeArgs) -> OutputShapes:
    """Return each size times its multiple."""
    multiples, rank = args.as_shape(1), with_rank(args.shapes[1], 1)[0]
    shape = args.shapes[0] if rank < 0 else with_rank(args.shapes[0], rank)
    if shape is None or multiples is None:
        return [None if shape is None else unknown_dims(len(shape))]
    return [tuple(map(multiply_dims, shape, multiples))]


@kernel("Pad", "PadV2", flops=free)
def pad(node: Node, x: Array, paddings: Array, value: Array | None = None) -> Array:
    """Pad x with zeros, or with the given value."""
    return padded(x, _widths(x, paddings), x.dtype.type(0) if value is None else value)


@shape_fn("Pad", "PadV2")
def pad_shape(args: ShapeArgs) -> OutputShapes:
    """Return each size with its padding added."""
    pairs = with_rank(args.shapes[1], 2)
    shape = args.shapes[0] if pairs[0] < 0 else with_rank(args.shapes[0], pairs[0])
    return [None if shape is None else padded_shape(shape, args.value(1))]


def padded(x: Array, widths: list[tuple[int, int]], filler: Any) -> Array:  # noqa: ANN401
    """Pad x with one value; widths before and after, for each axis."""
    shape = [d + a + b for d, (a, b) in zip(x.shape, widths, strict=True)]
    check_allocation(shape, x.dtype)
    out = np.full(shape, filler, dtype=x.dtype)
    out[tuple(slice(a, a + d) for d, (a, _) in zip(x.shape, widths, strict=True))] = x
    return out


def _widths(x: Array, paddings: Array) -> list[tuple[int, int]]:
    if paddings.shape != (x.ndim, 2):
        message = f"paddings of shape {list(paddings.shape)} for {x.ndim} axes"
        raise ValueError(message)
    widths = [(int(a), int(b)) for a, b in paddings.tolist()]
    if any(min(w) < 0 for w in widths):
        message = f"paddings {widths} are negative"
        raise ValueError(message)
    return widths


def padded_shape(shape: tuple[int, ...], paddings: Array | None) -> tuple[int, ...]:
    """Return a shape with the padding of each dimension added, as far as it is known."""
    if paddings is None or paddings.shape != (len(shape), 2):
        return unknown_dims(len(shape))
    added = [int(before) + int(behind) for before, behind in paddings]
    return tuple(map(add_dims, shape, added))


@kernel("MirrorPad", shape=pad_shape, flops=free)
def mirror_pad(node: Node, x: Array, paddings: Array) -> Array:
    """Pad x with its mirror image, without the edge (REFLECT) or with it (SYMMETRIC)."""
    widths, mode = _widths(x, paddings), node.attr_str("mode")
    if mode not in ("REFLECT", "SYMMETRIC"):
        message = f"unknown mode {mode!r}"
        raise ValueError(message)
    room = 1 if mode == "REFLECT" else 0
    if any(max(w) > d - room for d, w in zip(x.shape, widths, strict=True)):
        message = f"paddings {widths} are wider than the mirrored part"
        raise ValueError(message)
    # For a scalar, numpy does not accept a list of widths.
    return np.pad(x, widths, mode="reflect" if room else "symmetric") if widths else x


@kernel("SpaceToDepth", flops=free)
def space_to_depth(node: Node, x: Array) -> Array:
    """Move blocks of pixels into channels (NHWC or NCHW)."""
    block, x, back = _blocks(node, x)
    n, h, w, c = x.shape
    if h % block or w % block:
        message = f"{h} x {w} pixels cannot be cut into blocks of {block}"
        raise ValueError(message)
    parts = x.reshape(n, h // block, block, w // block, block, c).transpose(0, 1, 3, 2, 4, 5)
    out: Array = parts.reshape(n, h // block, w // block, block * block * c)
    moved: Array = out.transpose(back)
    return moved


@shape_fn("SpaceToDepth")
def space_to_depth_shape(args: ShapeArgs) -> OutputShapes:
    """Return the image's shape with blocks moved into its channels, or back."""
    block = args.node.attr_int("block_size")
    layout = args.node.attr_str("data_format", "NHWC")
    if layout not in ("NHWC", "NCHW"):
        return [None]
    shape = with_rank(args.shapes[0], 4)
    channel_first = layout == "NCHW"
    channel, height, width = (1, 2, 3) if channel_first else (3, 1, 2)
    out = list(shape)
    for axis in (height, width):
        out[axis] = _scaled(shape[axis], block, shrinks=args.node.op == "SpaceToDepth")
    out[channel] = _scaled(shape[channel], block * block, shrinks=args.node.op != "SpaceToDepth")
    return [tuple(out)]


def _blocks(node: Node, x: Array) -> tuple[int, Array, tuple[int, ...]]:
    """Return the block size, x as NHWC, and the permutation back."""
    block, layout = node.attr_int("block_size"), node.attr_str("data_format", "NHWC")
    if x.ndim != 4 or block < 1 or layout not in ("NHWC", "NCHW"):
        message = f"blocks of {block} in {layout} need a tensor of four axes"
        raise ValueError(message)
    if layout == "NCHW":
        return block, x.transpose(0, 2, 3, 1), (0, 3, 1, 2)
    return block, x, (0, 1, 2, 3)


def _scaled(size: int, by: int, *, shrinks: bool) -> int:
    return divide_dim(size, by) if shrinks else multiply_dims(size, by)


@kernel("DepthToSpace", shape=space_to_depth_shape, flops=free)
def depth_to_space(node: Node, x: Array) -> Array:
    """Move channels into blocks of pixels (NHWC or NCHW)."""
    block, x, back = _blocks(node, x)
    n, h, w, c = x.shape
    if c % (block * block):
        message = f"{c} channels cannot become blocks of {block} x {block}"
        raise ValueError(message)
    depth = c // (block * block)
    parts = x.reshape(n, h, w, block, block, depth).transpose(0, 1, 3, 2, 4, 5)
    out: Array = parts.reshape(n, h * block, w * block, depth)
    moved: Array = out.transpose(back)
    return moved


@shape_fn("BatchToSpaceND", "SpaceToBatchND")
def space_to_batch_nd_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape with blocks of the spatial dimensions moved into the batch, or back."""
    blocks, edges = args.integers(1), args.value(2)
    count = with_rank(args.shapes[1], 1)[0]
    shape = args.shapes[0]
    if shape is None:
        return [None]
    if count < 0:
        return [unknown_dims(len(shape))]
    at_least_rank(shape, count + 1)
    rest = shape[count + 1 :]
    if blocks is None:
        return [(*unknown_dims(count + 1), *rest)]
    return [(*_moved_blocks(args, shape, blocks, edges), *rest)]


@kernel("SpaceToBatch", "SpaceToBatchND", flops=free)
def space_to_batch(node: Node, x: Array, *inputs: Array) -> Array:
    """Split padded spatial axes into blocks whose positions move to the batch axis."""
    sizes, paddings = _block_sizes(node, inputs), inputs[-1]
    count = len(sizes)
    widths = [(0, 0), *_pairs(paddings, count), *[(0, 0)] * (x.ndim - 1 - count)]
    _check_blocks(x, sizes)
    whole = padded(x, widths, x.dtype.type(0))
    batch, spatial, rest = x.shape[0], whole.shape[1 : count + 1], x.shape[count + 1 :]
    if any(d % b for d, b in zip(spatial, sizes, strict=True)):
        message = f"{list(spatial)} cannot be cut into blocks of {list(sizes)}"
        raise ValueError(message)
    cut = [n for d, b in zip(spatial, sizes, strict=True) for n in (d // b, b)]
    within = range(2, 2 * count + 1, 2)
    order = [*within, 0, *range(1, 2 * count, 2), *range(2 * count + 1, 2 * count + 1 + len(rest))]
    parts = whole.reshape(batch, *cut, *rest).transpose(order)
    shape = (batch * math.prod(sizes), *(d // b for d, b in zip(spatial, sizes, strict=True)))
    out: Array = parts.reshape(*shape, *rest)
    return out


def _block_sizes(node: Node, inputs: tuple[Array, ...]) -> tuple[int, ...]:
    """Return the sizes of blocks from the first of two inputs, or an attribute."""
    return integers(inputs[0]) if len(inputs) > 1 else (node.attr_int("block_size"),) * 2


def _pairs(array: Array, count: int) -> list[tuple[int, int]]:
    if array.shape != (count, 2):
        message = f"expected {count} pairs, found the shape {list(array.shape)}"
        raise ValueError(message)
    return [(int(a), int(b)) for a, b in array.tolist()]


def _check_blocks(x: Array, sizes: tuple[int, ...]) -> None:
    if len(sizes) >= x.ndim or any(b < 1 for b in sizes):
        message = f"blocks of {list(sizes)} do not fit the shape {list(x.shape)}"
        raise ValueError(message)


def _moved_blocks(
    args: ShapeArgs, shape: tuple[int, ...], blocks: tuple[int, ...], edges: object
) -> tuple[int, ...]:
    to_batch = args.node.op.startswith("Space")
    batch = shape[0]
    sizes = []
    for i, block in enumerate(blocks):
        batch = _scaled(batch, block, shrinks=not to_batch)
        size = shape[i + 1]
        edge = UNKNOWN if edges is None else int(np.asarray(edges)[i].sum())
        if to_batch:
            sizes.append(divide_dim(add_dims(size, edge), block))
        else:
            whole = multiply_dims(size, block)
            sizes.append(UNKNOWN if min(whole, edge) < 0 else whole - edge)
    return (batch, *sizes)


@shape_fn("BatchToSpace", "SpaceToBatch")
def space_to_batch_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shape like SpaceToBatchND, with one block size for height and width."""
    block = args.node.attr_int("block_size")
    shape = with_rank(args.shapes[0], 4)
    return [(*_moved_blocks(args, shape, (block, block), args.value(1)), shape[3])]


@kernel("BatchToSpace", "BatchToSpaceND", flops=free)
def batch_to_space(node: Node, x: Array, *inputs: Array) -> Array:
    """Move the batch axis into blocks of the spatial axes, which are then cropped."""
    sizes, crops = _block_sizes(node, inputs), inputs[-1]
    count, product = len(sizes), math.prod(sizes)
    _check_blocks(x, sizes)
    if product < 1 or x.shape[0] % product:
        message = f"a batch of {x.shape[0]} cannot fill blocks of {list(sizes)}"
        raise ValueError(message)
    batch, spatial, rest = x.shape[0] // product, x.shape[1 : count + 1], x.shape[count + 1 :]
    parts = x.reshape(*sizes, batch, *spatial, *rest)
    order = [count, *(n for i in range(count) for n in (count + 1 + i, i))]
    order += range(2 * count + 1, 2 * count + 1 + len(rest))
    grown = [d * b for d, b in zip(spatial, sizes, strict=True)]
    whole: Array = parts.transpose(order).reshape(batch, *grown, *rest)
    cut: list[slice] = [slice(None)]
    for extent, (start, end) in zip(grown, _pairs(crops, count), strict=True):
        if start < 0 or end < 0 or start + end > extent:
            message = f"crops of {start} and {end} do not fit {extent}"
            raise ValueError(message)
        cut.append(slice(start, extent - end))
    return whole[tuple(cut)]


@kernel("ReverseV2", shape=unchanged, flops=free)
def reverse_v2(node: Node, x: Array, axes: Array) -> Array:
    """Reverse x along axes."""
    # In numpy, a reversed scalar is a number instead of an array.
    return np.asarray(np.flip(x, distinct_axes_of(axes, x.ndim)))


@kernel("Reverse", flops=free)
def reverse(node: Node, x: Array, flags: Array) -> Array:
    """Reverse x along the axes whose flags are set."""
    if flags.shape != (x.ndim,):
        message = f"a flag is needed for each of {x.ndim} axes"
        raise ValueError(message)
    return np.flip(x, tuple(np.flatnonzero(flags).tolist()))


@shape_fn("Reverse")
def reverse_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape, with as many dimensions as there are flags."""
    flags = with_rank(args.shapes[1], 1)[0]
    return [args.shapes[0] if flags < 0 else with_rank(args.shapes[0], flags)]


@kernel("ReverseSequence", flops=free)
def reverse_sequence(node: Node, x: Array, lengths: Array) -> Array:
    """Reverse the first ``lengths[b]`` elements of each batch entry."""
    along = axis_of(node.attr_int("seq_dim"), x.ndim)
    batch = axis_of(node.attr_int("batch_dim", 0), x.ndim)
    extent = x.shape[along]
    counts = integers(lengths)
    if len(counts) != x.shape[batch] or any(not 0 <= n <= extent for n in counts):
        message = f"lengths {list(counts)} do not fit the shape {list(x.shape)}"
        raise ValueError(message)
    place = np.arange(extent)
    ends = np.array(counts).reshape(-1, 1)
    order = np.where(place < ends, ends - 1 - place, place)
    shape = [1] * x.ndim
    shape[batch], shape[along] = len(counts), extent
    if batch > along:
        order = order.T
    out: Array = np.take_along_axis(x, order.reshape(shape), axis=along)
    return out


@shape_fn("ReverseSequence")
def reverse_sequence_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape, its batch merged with the number of lengths."""
    shape, lengths = args.shapes[0], with_rank(args.shapes[1], 1)
    if shape is None:
        return [None]
    axis = axis_index(args.node.attr_int("batch_dim", 0), len(shape))
    return [(*shape[:axis], merge_dim(shape[axis], lengths[0]), *shape[axis + 1 :])]
