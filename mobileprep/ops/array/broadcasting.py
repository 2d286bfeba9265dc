"""Ops that broadcast tensors and shapes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import (
    dimensions,
    integers,
)
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import (
    shape_in,
    two_vectors,
)
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import (
    UNKNOWN,
    with_rank,
)
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@kernel("BroadcastTo")
def broadcast_to(node: Node, x: Array, dims: Array) -> Array:
    """x repeated along axes of length 1."""
    return np.broadcast_to(x, dimensions(dims, x.dtype))


shape_fn("BroadcastTo")(shape_in(1))


flop_rule("BroadcastTo")(free)


@kernel("BroadcastArgs")
def broadcast_args(node: Node, x: Array, y: Array) -> Array:
    """The shape that two shapes broadcast to."""
    return np.array(np.broadcast_shapes(integers(x), integers(y)), dtype=x.dtype)


@shape_fn("BroadcastArgs")
def broadcast_args_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector of the larger rank."""
    x, y = with_rank(args.shapes[0], 1)[0], with_rank(args.shapes[1], 1)[0]
    return [(UNKNOWN if min(x, y) < 0 else max(x, y),)]


flop_rule("BroadcastArgs")(free)


shape_fn("BroadcastGradientArgs")(two_vectors)
