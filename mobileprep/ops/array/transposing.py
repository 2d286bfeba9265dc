"""Ops that put axes into another order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import (
    integers,
)
from mobileprep.ops.common_costs import free
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    MAX_RANK,
    ShapeConflictError,
    axis_index,
    unknown_dims,
    with_rank,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("Transpose", "ConjugateTranspose")
def transpose(node: Node, x: Array, order: Array) -> Array:
    """x with its axes in another order."""
    moved: Array = x.transpose(integers(order))
    if node.op == "ConjugateTranspose" and moved.dtype.kind == "c":
        moved = np.asarray(np.conj(moved))
    return moved


@shape_fn("Transpose", "ConjugateTranspose")
def transpose_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's dimensions in another order."""
    source, order = args.shapes[0], args.integers(1)
    if order is not None:
        source = with_rank(source, len(order))
        if sorted(axis_index(a, len(order)) for a in order) != list(range(len(order))):
            message = f"{list(order)} is no order of {len(order)} axes"
            raise ShapeConflictError(message)
        return [tuple(source[a] for a in order)]
    if source is None:
        axes = with_rank(args.shapes[1], 1)[0]
        return [unknown_dims(axes) if 0 <= axes <= MAX_RANK else None]
    # One dimension has only one order; of equal ones any order is the same.
    return [source if len(set(source)) <= 1 else unknown_dims(len(source))]


flop_rule("ConjugateTranspose", "Transpose")(free)
