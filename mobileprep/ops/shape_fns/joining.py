"""Shapes of ops that join tensors, cut them, or read parts of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.tensor import Array
from mobileprep.ops.dims import (
    UNKNOWN,
    ShapeConflictError,
    add_dims,
    at_least_rank,
    axis_index,
    concatenate,
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
    joined = reduce(merge, others) or known
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
    shape = reduce(merge, args.shapes)
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


@shape_fn("Slice")
def slice_(args: ShapeArgs) -> Sequence[TensorShape]:
    """The given sizes; -1 for what is left behind the beginning."""
    shape, begin, size = args.shapes[0], args.integers(1), args.as_shape(2)
    ranks = [len(s) for s in (shape, begin, size) if s is not None]
    counts = [with_rank(args.shapes[i], 1)[0] for i in (1, 2)]
    ranks += [c for c in counts if c >= 0]
    if not ranks:
        return [None]
    shape = with_rank(shape, ranks[0])
    wanted = args.integers(2)
    if wanted is None or len(wanted) != len(shape):
        return [size if size is not None else unknown_dims(len(shape))]
    starts = begin or unknown_dims(len(shape))
    return [tuple(map(_slice_size, shape, starts, wanted))]


def _slice_size(extent: int, start: int, size: int) -> int:
    if size >= 0:
        if extent >= 0 and (size > extent or start + size > extent):
            message = f"{size} elements from {start} do not lie within {extent}"
            raise ShapeConflictError(message)
        return size
    return extent - start if extent >= 0 and start >= 0 else UNKNOWN


@shape_fn("Gather")
def gather(args: ShapeArgs) -> Sequence[TensorShape]:
    """The indices' shape in the place of the first dimension."""
    params = at_least_rank(args.shapes[0], 1)
    return [concatenate(args.shapes[1], None if params is None else params[1:])]


@shape_fn("GatherV2")
def gather_v2(args: ShapeArgs) -> Sequence[TensorShape]:
    """The indices' shape, behind its batch dimensions, in the place of an axis."""
    params, indices, axis = args.shapes[0], args.shapes[1], args.scalar(2)
    batch = args.node.attr_int("batch_dims", 0)
    if params is None or indices is None:
        return [None]
    if batch < 0:
        batch += len(indices)
    if axis is None:
        return [unknown_dims(len(params) + len(indices) - 1 - batch)]
    axis = axis_index(axis, len(params))
    return [(*params[:axis], *indices[batch:], *params[axis + 1 :])]


@shape_fn("GatherNd")
def gather_nd(args: ShapeArgs) -> Sequence[TensorShape]:
    """For each index vector what the leading dimensions leave."""
    params, indices = args.shapes[0], at_least_rank(args.shapes[1], 1)
    if params is None or indices is None or indices[-1] < 0:
        return [None]
    at_least_rank(params, indices[-1])
    return [(*indices[:-1], *params[indices[-1] :])]


@shape_fn("ScatterNd")
def scatter_nd(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the third input holds."""
    return [args.as_shape(2)]


@shape_fn("TensorScatterAdd", "TensorScatterSub", "TensorScatterUpdate")
def tensor_scatter(args: ShapeArgs) -> Sequence[TensorShape]:
    """The first input's shape."""
    return [args.shapes[0]]


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


@shape_fn("Where")
def where(args: ShapeArgs) -> Sequence[TensorShape]:
    """A row for each element that is true, as long as the input has dimensions."""
    shape = args.shapes[0]
    return [(UNKNOWN, UNKNOWN if shape is None else len(shape))]


@shape_fn("Unique", "UniqueWithCounts", "UniqueV2", "UniqueWithCountsV2")
def unique(args: ShapeArgs) -> Sequence[TensorShape]:
    """The distinct elements, the place of each element among them, and how often each occurs."""
    counts = [(UNKNOWN,)] * (args.count() - 2)
    if args.node.op.endswith("V2"):
        return [args.shapes[0] and unknown_dims(len(args.shapes[0])), (UNKNOWN,), *counts]
    return [(UNKNOWN,), args.shapes[0], *counts]


@shape_fn("ListDiff")
def list_diff(args: ShapeArgs) -> Sequence[TensorShape]:
    """What is left, and where it was."""
    return [(UNKNOWN,), (UNKNOWN,)]


@shape_fn("DynamicPartition")
def dynamic_partition(args: ShapeArgs) -> Sequence[TensorShape]:
    """Parts of unknown length, each row what the data has behind the partitions' shape."""
    data, partitions = args.shapes[0], args.shapes[1]
    count = args.node.attr_int("num_partitions")
    if data is None or partitions is None:
        return [None] * count
    return [(UNKNOWN, *data[len(partitions) :])] * count


@shape_fn("SpaceToDepth", "DepthToSpace")
def space_to_depth(args: ShapeArgs) -> Sequence[TensorShape]:
    """Blocks of an image moved into its channels, or back."""
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


def _scaled(size: int, by: int, *, shrinks: bool) -> int:
    return divide_dim(size, by) if shrinks else multiply_dims(size, by)


@shape_fn("SpaceToBatchND", "BatchToSpaceND")
def space_to_batch_nd(args: ShapeArgs) -> Sequence[TensorShape]:
    """Blocks of the dimensions behind the batch moved into the batch, or back."""
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


@shape_fn("SpaceToBatch", "BatchToSpace")
def space_to_batch(args: ShapeArgs) -> Sequence[TensorShape]:
    """As SpaceToBatchND, with one block size for height and width."""
    block = args.node.attr_int("block_size")
    shape = with_rank(args.shapes[0], 4)
    return [(*_moved_blocks(args, shape, (block, block), args.value(1)), shape[3])]


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
