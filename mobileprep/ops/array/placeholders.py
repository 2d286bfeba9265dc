"""Constants and placeholders, where tensors come from."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import declared_shape
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

# Up to this graph version an unknown shape could not be told from a scalar's.
LAST_AMBIGUOUS_PRODUCER = 21


@kernel("PlaceholderWithDefault")
def placeholder_with_default(node: Node, default: Array) -> Array:
    """The default: what is fed takes the node's place."""
    return default


shape_fn("PlaceholderWithDefault")(declared_shape)


flop_rule("PlaceholderWithDefault")(free)


@shape_fn("Const", "HostConst")
def const_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The value's shape."""
    return [args.node.attr_tensor("value").shape]


flop_rule("Const")(free)


@shape_fn("Placeholder", "PlaceholderV2")
def declared_once_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The shape that the node declares; a scalar, in old graphs, stands for any shape."""
    shape = args.node.attr_shape("shape")
    ambiguous = args.node.op == "Variable" or args.producer <= LAST_AMBIGUOUS_PRODUCER
    return [None if shape == () and ambiguous else shape]


flop_rule("Placeholder", "PlaceholderV2")(free)


shape_fn("ImmutableConst")(declared_shape)
