"""Ops that join, repeat, pad, reverse and interleave tensors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import (
    axes_of,
    axis_of,
    check_allocation,
    integers,
    same_type,
    scalar,
)
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    UNKNOWN,
    add_dims,
    axis_index,
    merge,
    merge_dim,
    multiply_dims,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("ConcatV2")
def concat_v2(node: Node, *inputs: Array) -> Array:
    """Tensors joined along the axis that the last input tells."""
    return _joined(node, inputs[:-1], inputs[-1])


@shape_fn("ConcatV2")
def concat_v2_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The inputs one after another along an axis."""
    return [concatenated_shape(args.shapes[:-1], args.scalar(len(args.shapes) - 1))]


flop_rule("ConcatV2")(free)


def _joined(node: Node, parts: tuple[Array, ...], axis: Array) -> Array:
    same_type(node, *parts)
    return np.concatenate(parts, axis=axis_of(scalar(axis), parts[0].ndim))


def concatenated_shape(shapes: Sequence[TensorShape], axis: int | None) -> TensorShape:
    """The shape of tensors joined along an axis, which is None where it is not known."""
    known = next((s for s in shapes if s is not None), None)
    if known is None:
        return None
    if axis is None:
        return unknown_dims(len(known))
    axis = axis_index(axis, len(known))
    size = reduce(
        add_dims, (UNKNOWN if s is None else with_rank(s, len(known))[axis] for s in shapes)
    )
    others = (s and (*s[:axis], UNKNOWN, *s[axis + 1 :]) for s in shapes)
    joined = reduce(merge, others, None) or known
    return (*joined[:axis], size, *joined[axis + 1 :])


@kernel("Concat")
def concat(node: Node, axis: Array, *parts: Array) -> Array:
    """Tensors joined along the axis that the first input tells."""
    return _joined(node, parts, axis)


@shape_fn("Concat")
def concat_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The inputs one after another along an axis."""
    return [concatenated_shape(args.shapes[1:], args.scalar(0))]


flop_rule("Concat")(free)


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


@shape_fn("ConcatOffset")
def concat_offset_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector for each of the joined shapes."""
    return args.shapes[1:]


flop_rule("ConcatOffset")(free)


@kernel("Pack")
def pack(node: Node, *inputs: Array) -> Array:
    """Tensors of one shape, stacked along a new axis."""
    same_type(node, *inputs)
    return np.stack(inputs, axis=axis_of(node.attr_int("axis", 0), inputs[0].ndim + 1))


@shape_fn("Pack")
def pack_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The inputs' common shape with one more dimension, as long as there are inputs."""
    if args.node.op == "ParallelConcat":
        return [args.node.attr_shape("shape")]
    shape = reduce(merge, args.shapes, None)
    if shape is None:
        return [None]
    axis = axis_index(args.node.attr_int("axis", 0), len(shape) + 1)
    return [(*shape[:axis], len(args.shapes), *shape[axis:])]


flop_rule("Pack")(free)


shape_fn("ParallelConcat")(pack_shape)


@kernel("Tile")
def tile(node: Node, x: Array, multiples: Array) -> Array:
    """x repeated along each axis."""
    counts = integers(multiples)
    if len(counts) != x.ndim:
        message = f"multiples need {x.ndim} elements"
        raise ValueError(message)
    check_allocation([d * n for d, n in zip(x.shape, counts, strict=True)], x.dtype)
    return np.tile(x, counts)


@shape_fn("Tile")
def tile_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Each size times its multiple."""
    multiples, rank = args.as_shape(1), with_rank(args.shapes[1], 1)[0]
    shape = args.shapes[0] if rank < 0 else with_rank(args.shapes[0], rank)
    if shape is None or multiples is None:
        return [None if shape is None else unknown_dims(len(shape))]
    return [tuple(map(multiply_dims, shape, multiples))]


flop_rule("Tile")(free)


@kernel("Pad", "PadV2")
def pad(node: Node, x: Array, paddings: Array, value: Array | None = None) -> Array:
    """x with a border of zeros, or of the given value."""
    return padded(x, _widths(x, paddings), x.dtype.type(0) if value is None else value)


@shape_fn("Pad", "PadV2")
def pad_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Each size and what is put before and behind it."""
    pairs = with_rank(args.shapes[1], 2)
    shape = args.shapes[0] if pairs[0] < 0 else with_rank(args.shapes[0], pairs[0])
    return [None if shape is None else padded_shape(shape, args.value(1))]


flop_rule("Pad", "PadV2")(free)


def padded(x: Array, widths: list[tuple[int, int]], filler: Any) -> Array:  # noqa: ANN401
    """x with a border of one value; widths before and after, for each axis."""
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
    """A shape with what is put before and behind each dimension, as far as that is known."""
    if paddings is None or paddings.shape != (len(shape), 2):
        return unknown_dims(len(shape))
    added = [int(before) + int(behind) for before, behind in paddings]
    return tuple(map(add_dims, shape, added))


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


shape_fn("MirrorPad")(pad_shape)


flop_rule("MirrorPad")(free)


@kernel("ReverseV2")
def reverse_v2(node: Node, x: Array, axes: Array) -> Array:
    """x reversed along axes."""
    return np.flip(x, axes_of(axes, x.ndim))


shape_fn("ReverseV2")(unchanged)


flop_rule("ReverseV2")(free)


@kernel("Reverse")
def reverse(node: Node, x: Array, flags: Array) -> Array:
    """x reversed along the axes flagged."""
    if flags.shape != (x.ndim,):
        message = f"a flag is needed for each of {x.ndim} axes"
        raise ValueError(message)
    return np.flip(x, tuple(np.flatnonzero(flags).tolist()))


@shape_fn("Reverse")
def reverse_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, of as many dimensions as there are flags."""
    flags = with_rank(args.shapes[1], 1)[0]
    return [args.shapes[0] if flags < 0 else with_rank(args.shapes[0], flags)]


flop_rule("Reverse")(free)


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


@shape_fn("ReverseSequence")
def reverse_sequence_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, its batch merged with the number of lengths."""
    shape, lengths = args.shapes[0], with_rank(args.shapes[1], 1)
    if shape is None:
        return [None]
    axis = axis_index(args.node.attr_int("batch_dim", 0), len(shape))
    return [(*shape[:axis], merge_dim(shape[axis], lengths[0]), *shape[axis + 1 :])]


flop_rule("ReverseSequence")(free)
