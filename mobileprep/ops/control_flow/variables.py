"""Variables: their shapes; freezing makes constants of them."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.array.placeholders import declared_once_shape
from mobileprep.ops.common_shapes import declared_shape, scalars_only
from mobileprep.ops.dims import UNKNOWN, concatenate, merge
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

shape_fn("VariableV2")(declared_shape)


shape_fn("Variable")(declared_once_shape)


@shape_fn("VarHandleOp")
def var_handle_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar handle of a variable."""
    args.set_handle(args.node.attr_shape("shape"))
    return [()]


@shape_fn("ReadVariableOp")
def read_variable_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The variable's shape."""
    return [args.handle(0)]


@shape_fn("ResourceGather")
def resource_gather_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The indices' shape in the place of the variable's first dimension."""
    variable = args.handle(0)
    batch = args.node.attr_int("batch_dims", 0)
    if variable is None or args.shapes[1] is None or batch:
        return [None]
    return [concatenate(args.shapes[1], variable[1:])]


@shape_fn("VariableShape")
def variable_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """A vector with an element for each of the variable's dimensions."""
    variable = args.handle(0)
    return [(UNKNOWN if variable is None else len(variable),)]


@shape_fn("Assign", "AssignAdd", "AssignSub")
def assign_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """The common shape of the variable and what it gets."""
    if args.node.op == "Assign" and not args.node.attr_bool("validate_shape", True):
        return [args.shapes[1]]
    return [merge(args.shapes[0], args.shapes[1])]


shape_fn("CountUpTo", "GetSessionHandleV2", "IsVariableInitialized", "Stage", "VarIsInitializedOp")(
    scalars_only
)
