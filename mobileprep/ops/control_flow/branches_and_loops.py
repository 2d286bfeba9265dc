"""Switch, Merge, loops and conditionals: shapes and costs; the runtime runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.common_costs import free
from mobileprep.ops.common_shapes import unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.dims import common
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

# Each round makes a size unknown, or a rank; few loops change more than one.
_MOST_ROUNDS: Final = 16


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


@shape_fn("Case", "StatelessCase")
def declared_outputs_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The declared output shapes, where there are any."""
    return _declared(args) or [None] * args.count()


@shape_fn("If", "StatelessIf")
def if_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The declared shapes, or what those of both branches have in common."""
    declared = _declared(args)
    if declared:
        return declared
    ways = [args.called(name, args.shapes[1:]) for name in ("then_branch", "else_branch")]
    return [common(pair) for pair in zip(*ways, strict=True)]


@shape_fn("StatelessWhile", "While")
def while_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The declared shapes, or what each variable's shapes in all turns have in common."""
    declared = _declared(args)
    if declared:
        return declared
    shapes = list(args.shapes)
    for _ in range(_MOST_ROUNDS):
        after = [common(pair) for pair in zip(shapes, args.called("body", shapes), strict=True)]
        if after == shapes:
            return shapes
        shapes = after
    return [None] * len(shapes)


def _declared(args: ShapeArgs) -> Sequence[TensorShape]:
    return args.node.attr_shapes("output_shapes") if "output_shapes" in args.node.attrs else ()
