"""Kernels that join, repeat, pad, reverse and interleave tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import kernel
from mobileprep.ops.kernels._common import (
    axes_of,
    axis_of,
    check_allocation,
    integers,
    same_type,
    scalar,
)


@kernel("ConcatV2")
def concat_v2(node: Node, *inputs: Array) -> Array:
    """Tensors joined along the axis that the last input tells."""
    return _joined(node, inputs[:-1], inputs[-1])


@kernel("Concat")
def concat(node: Node, axis: Array, *parts: Array) -> Array:
    """Tensors joined along the axis that the first input tells."""
    return _joined(node, parts, axis)


def _joined(node: Node, parts: tuple[Array, ...], axis: Array) -> Array:
    same_type(node, *parts)
    return np.concatenate(parts, axis=axis_of(scalar(axis), parts[0].ndim))


@kernel("ConcatOffset")
def concat_offset(node: Node, axis: Array, *shapes: Array) -> tuple[Array, ...]:
    """Where each part begins in the joined tensor."""
    along = axis_of(scalar(axis), shapes[0].size)
    offsets, position = [], 0
    for dims in shapes:
        offset = np.zeros_like(dims)
        offset[along] = position
        position += int(dims[along])
        offsets.append(offset)
    return tuple(offsets)


@kernel("Pack")
def pack(node: Node, *inputs: Array) -> Array:
    """Tensors of one shape, stacked along a new axis."""
    same_type(node, *inputs)
    return np.stack(inputs, axis=axis_of(node.attr_int("axis", 0), inputs[0].ndim + 1))


@kernel("Tile")
def tile(node: Node, x: Array, multiples: Array) -> Array:
    """x repeated along each axis."""
    counts = integers(multiples)
    if len(counts) != x.ndim:
        message = f"multiples need {x.ndim} elements"
        raise ValueError(message)
    check_allocation([d * n for d, n in zip(x.shape, counts, strict=True)], x.dtype)
    return np.tile(x, counts)


@kernel("Pad", "PadV2")
def pad(node: Node, x: Array, paddings: Array, value: Array | None = None) -> Array:
    """x with a border of zeros, or of the given value."""
    return _padded(x, _widths(x, paddings), x.dtype.type(0) if value is None else value)


def _padded(x: Array, widths: list[tuple[int, int]], filler: Any) -> Array:  # noqa: ANN401
    shape = [d + a + b for d, (a, b) in zip(x.shape, widths, strict=True)]
    check_allocation(shape, x.dtype)
    out = np.full(shape, filler, dtype=x.dtype)
    out[tuple(slice(a, a + d) for d, (a, _) in zip(x.shape, widths, strict=True))] = x
    return out


@kernel("MirrorPad")
def mirror_pad(node: Node, x: Array, paddings: Array) -> Array:
    """x with a border that mirrors it, the edge itself left out (REFLECT) or not (SYMMETRIC)."""
    widths, mode = _widths(x, paddings), node.attr_str("mode")
    if mode not in ("REFLECT", "SYMMETRIC"):
        message = f"there is no mode {mode!r}"
        raise ValueError(message)
    room = 1 if mode == "REFLECT" else 0
    if any(max(w) > d - room for d, w in zip(x.shape, widths, strict=True)):
        message = f"paddings {widths} are wider than what they mirror"
        raise ValueError(message)
    return np.pad(x, widths, mode="reflect" if room else "symmetric")


def _widths(x: Array, paddings: Array) -> list[tuple[int, int]]:
    if paddings.shape != (x.ndim, 2):
        message = f"paddings of shape {list(paddings.shape)} for {x.ndim} axes"
        raise ValueError(message)
    widths = [(int(a), int(b)) for a, b in paddings.tolist()]
    if any(min(w) < 0 for w in widths):
        message = f"paddings {widths} are negative"
        raise ValueError(message)
    return widths


@kernel("ReverseV2")
def reverse_v2(node: Node, x: Array, axes: Array) -> Array:
    """x reversed along axes."""
    return np.flip(x, axes_of(axes, x.ndim))


@kernel("Reverse")
def reverse(node: Node, x: Array, flags: Array) -> Array:
    """x reversed along the axes flagged."""
    if flags.shape != (x.ndim,):
        message = f"a flag is needed for each of {x.ndim} axes"
        raise ValueError(message)
    return np.flip(x, tuple(np.flatnonzero(flags).tolist()))


@kernel("ReverseSequence")
def reverse_sequence(node: Node, x: Array, lengths: Array) -> Array:
    """x with the first ``lengths[b]`` elements of each batch entry reversed."""
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


@kernel("SpaceToDepth")
def space_to_depth(node: Node, x: Array) -> Array:
    """Blocks of pixels turned into channels (NHWC or NCHW)."""
    block, x, back = _blocks(node, x)
    n, h, w, c = x.shape
    if h % block or w % block:
        message = f"{h} x {w} pixels cannot be cut into blocks of {block}"
        raise ValueError(message)
    parts = x.reshape(n, h // block, block, w // block, block, c).transpose(0, 1, 3, 2, 4, 5)
    out: Array = parts.reshape(n, h // block, w // block, block * block * c)
    moved: Array = out.transpose(back)
    return moved


@kernel("DepthToSpace")
def depth_to_space(node: Node, x: Array) -> Array:
    """Channels turned into blocks of pixels (NHWC or NCHW)."""
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


def _blocks(node: Node, x: Array) -> tuple[int, Array, tuple[int, ...]]:
    """The block size, x as NHWC, and the permutation back."""
    block, layout = node.attr_int("block_size"), node.attr_str("data_format", "NHWC")
    if x.ndim != 4 or block < 1 or layout not in ("NHWC", "NCHW"):
        message = f"blocks of {block} in {layout} need a tensor of four axes"
        raise ValueError(message)
    if layout == "NCHW":
        return block, x.transpose(0, 2, 3, 1), (0, 3, 1, 2)
    return block, x, (0, 1, 2, 3)


@kernel("SpaceToBatchND")
def space_to_batch_nd(node: Node, x: Array, block: Array, paddings: Array) -> Array:
    """Padded spatial axes cut into blocks whose positions go to the batch axis."""
    return _to_batch(x, integers(block), paddings)


@kernel("SpaceToBatch")
def space_to_batch(node: Node, x: Array, paddings: Array) -> Array:
    """``SpaceToBatchND`` with square blocks of the attribute ``block_size``."""
    return _to_batch(x, (node.attr_int("block_size"),) * 2, paddings)


def _to_batch(x: Array, sizes: tuple[int, ...], paddings: Array) -> Array:
    count = len(sizes)
    widths = [(0, 0), *_pairs(paddings, count), *[(0, 0)] * (x.ndim - 1 - count)]
    _check_blocks(x, sizes)
    padded = _padded(x, widths, x.dtype.type(0))
    batch, spatial, rest = x.shape[0], padded.shape[1 : count + 1], x.shape[count + 1 :]
    if any(d % b for d, b in zip(spatial, sizes, strict=True)):
        message = f"{list(spatial)} cannot be cut into blocks of {list(sizes)}"
        raise ValueError(message)
    cut = [n for d, b in zip(spatial, sizes, strict=True) for n in (d // b, b)]
    within = range(2, 2 * count + 1, 2)
    order = [*within, 0, *range(1, 2 * count, 2), *range(2 * count + 1, 2 * count + 1 + len(rest))]
    parts = padded.reshape(batch, *cut, *rest).transpose(order)
    shape = (batch * math.prod(sizes), *(d // b for d, b in zip(spatial, sizes, strict=True)))
    out: Array = parts.reshape(*shape, *rest)
    return out


@kernel("BatchToSpaceND")
def batch_to_space_nd(node: Node, x: Array, block: Array, crops: Array) -> Array:
    """The batch axis spread over blocks of the spatial axes, which are then cropped."""
    return _to_space(x, integers(block), crops)


@kernel("BatchToSpace")
def batch_to_space(node: Node, x: Array, crops: Array) -> Array:
    """``BatchToSpaceND`` with square blocks of the attribute ``block_size``."""
    return _to_space(x, (node.attr_int("block_size"),) * 2, crops)


def _to_space(x: Array, sizes: tuple[int, ...], crops: Array) -> Array:
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


def _pairs(array: Array, count: int) -> list[tuple[int, int]]:
    if array.shape != (count, 2):
        message = f"expected {count} pairs, found the shape {list(array.shape)}"
        raise ValueError(message)
    return [(int(a), int(b)) for a, b in array.tolist()]


def _check_blocks(x: Array, sizes: tuple[int, ...]) -> None:
    if len(sizes) >= x.ndim or any(b < 1 for b in sizes):
        message = f"blocks of {list(sizes)} do not fit the shape {list(x.shape)}"
        raise ValueError(message)
