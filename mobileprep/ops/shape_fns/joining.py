"""Shapes of ops that join tensors, cut them apart, pad, repeat or turn them round."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.tensor import Array
from mobileprep.ops.dims import (
    UNKNOWN,
    add_dims,
    axis_index,
    divide_dim,
    merge,
    merge_dim,
    multiply_dims,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn("ConcatV2")
def concat_v2(args: ShapeArgs) -> Sequence[TensorShape]:
    """The inputs one after another along an axis."""
    return [_concat(args.shapes[:-1], args.scalar(len(args.shapes) - 1))]


@shape_fn("Concat")
def concat(args: ShapeArgs) -> Sequence[TensorShape]:
    """The inputs one after another along an axis."""
    return [_concat(args.shapes[1:], args.scalar(0))]


@shape_fn("QuantizedConcat")
def quantized_concat(args: ShapeArgs) -> Sequence[TensorShape]:
    """The inputs one after another along an axis, and the range of the result."""
    count = args.node.attr_int("N")
    return [_concat(args.shapes[1 : count + 1], args.scalar(0)), (), ()]


@shape_fn("QuantizedConcatV2")
def quantized_concat_v2(args: ShapeArgs) -> Sequence[TensorShape]:
    """The inputs one after another along an axis, and the range of the result."""
    count = args.node.attr_int("N")
    return [_concat(args.shapes[:count], args.scalar(count)), (), ()]


def _concat(shapes: Sequence[TensorShape], axis: int | None) -> TensorShape:
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


@shape_fn("ConcatOffset")
def concat_offset(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector for each of the joined shapes."""
    return args.shapes[1:]


@shape_fn("Pack", "ParallelConcat")
def pack(args: ShapeArgs) -> Sequence[TensorShape]:
    """The inputs' common shape with one more dimension, as long as there are inputs."""
    if args.node.op == "ParallelConcat":
        return [args.node.attr_shape("shape")]
    shape = reduce(merge, args.shapes, None)
    if shape is None:
        return [None]
    axis = axis_index(args.node.attr_int("axis", 0), len(shape) + 1)
    return [(*shape[:axis], len(args.shapes), *shape[axis:])]


@shape_fn("Unpack")
def unpack(args: ShapeArgs) -> Sequence[TensorShape]:
    """For each element of an axis the input without that axis."""
    count, shape = args.node.attr_int("num"), args.shapes[0]
    if shape is None:
        return [None] * count
    axis = axis_index(args.node.attr_int("axis", 0), len(shape))
    merge_dim(shape[axis], count)
    return [(*shape[:axis], *shape[axis + 1 :])] * count


@shape_fn("Split")
def split(args: ShapeArgs) -> Sequence[TensorShape]:
    """Equal parts along an axis."""
    axis, shape, count = args.scalar(0), args.shapes[1], args.node.attr_int("num_split")
    if shape is None or axis is None:
        return [None if shape is None else unknown_dims(len(shape))] * count
    axis = axis_index(axis, len(shape))
    return [(*shape[:axis], divide_dim(shape[axis], count), *shape[axis + 1 :])] * count


@shape_fn("SplitV")
def split_v(args: ShapeArgs) -> Sequence[TensorShape]:
    """Parts of given sizes along an axis, one of which may be -1 for the rest."""
    shape, sizes, axis = args.shapes[0], args.integers(1), args.scalar(2)
    count = args.node.attr_int("num_split")
    if shape is None or axis is None:
        return [None if shape is None else unknown_dims(len(shape))] * count
    axis = axis_index(axis, len(shape))
    before, after = shape[:axis], shape[axis + 1 :]
    if sizes is None or len(sizes) != count:
        # One part is the whole.
        size = shape[axis] if count == 1 else UNKNOWN
        return [(*before, size, *after)] * count
    given = sum(s for s in sizes if s >= 0)
    rest = shape[axis] - given if shape[axis] >= 0 else UNKNOWN
    return [(*before, rest if s < 0 else s, *after) for s in sizes]


@shape_fn("Tile")
def tile(args: ShapeArgs) -> Sequence[TensorShape]:
    """Each size times its multiple."""
    multiples, rank = args.as_shape(1), with_rank(args.shapes[1], 1)[0]
    shape = args.shapes[0] if rank < 0 else with_rank(args.shapes[0], rank)
    if shape is None or multiples is None:
        return [None if shape is None else unknown_dims(len(shape))]
    return [tuple(map(multiply_dims, shape, multiples))]


@shape_fn("Pad", "PadV2", "MirrorPad")
def pad(args: ShapeArgs) -> Sequence[TensorShape]:
    """Each size and what is put before and behind it."""
    pairs = with_rank(args.shapes[1], 2)
    shape = args.shapes[0] if pairs[0] < 0 else with_rank(args.shapes[0], pairs[0])
    return [None if shape is None else padded(shape, args.value(1))]


def padded(shape: tuple[int, ...], paddings: Array | None) -> tuple[int, ...]:
    """A shape with what is put before and behind each dimension, as far as that is known."""
    if paddings is None or paddings.shape != (len(shape), 2):
        return unknown_dims(len(shape))
    added = [int(before) + int(behind) for before, behind in paddings]
    return tuple(map(add_dims, shape, added))


@shape_fn("Reverse")
def reverse(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, of as many dimensions as there are flags."""
    flags = with_rank(args.shapes[1], 1)[0]
    return [args.shapes[0] if flags < 0 else with_rank(args.shapes[0], flags)]


@shape_fn("ReverseSequence")
def reverse_sequence(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, its batch merged with the number of lengths."""
    shape, lengths = args.shapes[0], with_rank(args.shapes[1], 1)
    if shape is None:
        return [None]
    axis = axis_index(args.node.attr_int("batch_dim", 0), len(shape))
    return [(*shape[:axis], merge_dim(shape[axis], lengths[0]), *shape[axis + 1 :])]
