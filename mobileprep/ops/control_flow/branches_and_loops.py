"""Switch, Merge, loops and conditionals: shapes and costs; the runtime runs them."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import common
from mobileprep.ops.shape_function import ShapeArgs, shape_fn


@shape_fn("Switch", "RefSwitch")
def switch_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape on both sides."""
    return [args.shapes[0]] * 2


flop_rule("Switch")(free)


@shape_fn("Merge", "RefMerge")
def merge_branches_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """What all inputs have in common, and which of them came."""
    return [common(args.shapes), ()]


flop_rule("Merge")(free)


@shape_fn("Enter")
def enter_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, where no turn of the loop can change it."""
    return [args.shapes[0] if args.node.attr_bool("is_constant", False) else None]


flop_rule("Enter")(free)


shape_fn("Exit", "NextIteration", "RefEnter", "RefExit", "RefNextIteration")(unchanged)


flop_rule("Exit", "NextIteration")(free)


@shape_fn("Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While")
def declared_outputs_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The declared output shapes, where there are any; a turn may change what is not declared."""
    declared = args.node.attr_shapes("output_shapes") if "output_shapes" in args.node.attrs else ()
    return declared or [None] * args.count()
