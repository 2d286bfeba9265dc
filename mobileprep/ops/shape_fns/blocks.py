"""Shapes of ops that move blocks of space into channels or batches, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import (
    UNKNOWN,
    add_dims,
    at_least_rank,
    divide_dim,
    multiply_dims,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


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
