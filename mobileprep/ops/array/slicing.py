"""Ops that cut a block out of a tensor, and that roll it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import axis_of, integers
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    UNKNOWN,
    ShapeConflictError,
    merge_dim,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("Slice")
def slice_(node: Node, x: Array, begin: Array, size: Array) -> Array:
    """A block of x: where it begins, and its size, -1 for all the rest."""
    starts, sizes = integers(begin), integers(size)
    if len(starts) != x.ndim or len(sizes) != x.ndim:
        message = f"begin and size need {x.ndim} elements"
        raise ValueError(message)
    cut = []
    for start, length, extent in zip(starts, sizes, x.shape, strict=True):
        end = extent if length == -1 else start + length
        if not 0 <= start <= end <= extent:
            message = f"{length} elements from {start} do not lie within {extent}"
            raise ValueError(message)
        cut.append(slice(start, end))
    # A slice of a scalar is a number to numpy, and no array.
    return np.asarray(x[tuple(cut)])


@shape_fn("Slice")
def slice_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The given sizes; -1 for what is left behind the beginning."""
    shape, begin, size = args.shapes[0], args.integers(1), args.as_shape(2)
    ranks = [len(s) for s in (shape, begin, size) if s is not None]
    counts = [with_rank(args.shapes[i], 1)[0] for i in (1, 2)]
    ranks += [c for c in counts if c >= 0]
    if not ranks:
        return [None]
    shape = with_rank(shape, reduce(merge_dim, ranks))
    wanted = args.integers(2)
    if wanted is None or len(wanted) != len(shape):
        return [size if size is not None else unknown_dims(len(shape))]
    starts = begin or unknown_dims(len(shape))
    return [tuple(map(_slice_size, shape, starts, wanted))]


flop_rule("Slice")(free)


def _slice_size(extent: int, start: int, size: int) -> int:
    if size >= 0:
        if extent >= 0 and (size > extent or start + size > extent):
            message = f"{size} elements from {start} do not lie within {extent}"
            raise ShapeConflictError(message)
        return size
    return extent - start if extent >= 0 and start >= 0 else UNKNOWN


@kernel("Roll")
def roll(node: Node, x: Array, shift: Array, axis: Array) -> Array:
    """x with its elements moved along axes, those that leave coming in at the other end."""
    axes = tuple(axis_of(a, x.ndim) for a in integers(axis))
    return np.roll(x, integers(shift), axes)


shape_fn("Roll")(unchanged)


flop_rule("Roll")(free)
