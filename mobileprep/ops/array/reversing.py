"""Ops that reverse tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import (
    axis_of,
    distinct_axes_of,
    integers,
)
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    axis_index,
    merge_dim,
    with_rank,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("ReverseV2")
def reverse_v2(node: Node, x: Array, axes: Array) -> Array:
    """x reversed along axes."""
    # A reversed scalar is a number to numpy, and no array.
    return np.asarray(np.flip(x, distinct_axes_of(axes, x.ndim)))


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
