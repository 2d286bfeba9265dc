"""Shapes around control flow, functions, variables and lists of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from mobileprep.ir.attrs import TensorShape
from mobileprep.ops.dims import UNKNOWN, common, concatenate, merge, with_rank
from mobileprep.ops.shape_fn import ShapeArgs, shape_fn


@shape_fn("Switch", "RefSwitch")
def switch(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape on both sides."""
    return [args.shapes[0]] * 2


@shape_fn("Merge", "RefMerge")
def merge_branches(args: ShapeArgs) -> Sequence[TensorShape]:
    """What all inputs have in common, and which of them came."""
    return [common(args.shapes), ()]


@shape_fn("Enter")
def enter(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape, where no turn of the loop can change it."""
    return [args.shapes[0] if args.node.attr_bool("is_constant", False) else None]


@shape_fn("Exit", "NextIteration", "RefEnter", "RefExit", "RefNextIteration")
def in_loop(args: ShapeArgs) -> Sequence[TensorShape]:
    """The input's shape."""
    return [args.shapes[0]]


@shape_fn("LoopCond")
def loop_cond(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar."""
    return [()]


@shape_fn("NoOp", "Assert", "ControlTrigger", "PrintV2", "SaveV2", "Save", "SaveSlices")
def nothing(args: ShapeArgs) -> Sequence[TensorShape]:
    """No outputs."""
    return []


@shape_fn("If", "StatelessIf", "Case", "StatelessCase")
def conditional(args: ShapeArgs) -> Sequence[TensorShape]:
    """The declared output shapes, where there are any."""
    return _declared(args) or [None] * args.count()


@shape_fn("While", "StatelessWhile")
def while_loop(args: ShapeArgs) -> Sequence[TensorShape]:
    """The declared output shapes; a turn may change what is not declared."""
    return _declared(args) or [None] * args.count()


def _declared(args: ShapeArgs) -> Sequence[TensorShape]:
    return args.node.attr_shapes("output_shapes") if "output_shapes" in args.node.attrs else ()


@shape_fn("VarHandleOp")
def var_handle(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar handle of a variable."""
    args.set_handle(args.node.attr_shape("shape"))
    return [()]


@shape_fn("ReadVariableOp")
def read_variable(args: ShapeArgs) -> Sequence[TensorShape]:
    """The variable's shape."""
    return [args.handle(0)]


@shape_fn("ResourceGather")
def resource_gather(args: ShapeArgs) -> Sequence[TensorShape]:
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
def assign(args: ShapeArgs) -> Sequence[TensorShape]:
    """The common shape of the variable and what it gets."""
    if args.node.op == "Assign" and not args.node.attr_bool("validate_shape", True):
        return [args.shapes[1]]
    return [merge(args.shapes[0], args.shapes[1])]


@shape_fn("IsVariableInitialized", "VarIsInitializedOp")
def is_initialized(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar."""
    return [()]


@shape_fn("RestoreV2")
def restore_v2(args: ShapeArgs) -> Sequence[TensorShape]:
    """Tensors of any shape, or of the shape of the slice that is asked for."""
    return [None] * args.count()


@shape_fn("ShardedFilename", "MergeV2Checkpoints", "StringFormat")
def file_name(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar for each output."""
    return [()] * args.count()


@shape_fn("TensorArrayV3")
def tensor_array(args: ShapeArgs) -> Sequence[TensorShape]:
    """A handle and the flow that orders what is done with the array."""
    identical = args.node.attr_bool("identical_element_shapes", False)
    if identical:
        args.set_handle(args.node.attr_shape("element_shape"))
    return [(2,), ()]


@shape_fn("TensorArrayWriteV3", "TensorArrayScatterV3", "TensorArraySplitV3", "TensorArraySizeV3")
def tensor_array_flow(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar: the flow, or a size."""
    return [()]


@shape_fn("TensorArrayReadV3")
def tensor_array_read(args: ShapeArgs) -> Sequence[TensorShape]:
    """An element's shape, where all elements have one."""
    return [args.handle(0)]


@shape_fn("TensorArrayGatherV3")
def tensor_array_gather(args: ShapeArgs) -> Sequence[TensorShape]:
    """The elements one upon another."""
    count = with_rank(args.shapes[1], 1)
    element = args.handle(0)
    if element is None:
        element = args.node.attr_shape("element_shape")
    return [concatenate(count, element)]


@shape_fn("TensorArrayConcatV3")
def tensor_array_concat(args: ShapeArgs) -> Sequence[TensorShape]:
    """The elements one behind another, and their lengths."""
    return [None, (UNKNOWN,)]


@shape_fn("TensorArrayGradV3")
def tensor_array_grad(args: ShapeArgs) -> Sequence[TensorShape]:
    """A handle and its flow."""
    return [(2,), ()]


@shape_fn("TensorListReserve", "EmptyTensorList")
def tensor_list(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar handle of a list."""
    args.set_handle(args.as_shape(0))
    return [()]


@shape_fn("TensorListFromTensor")
def tensor_list_from(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar handle of a list of rows."""
    source = args.shapes[0]
    args.set_handle(merge(None if source is None else source[1:], args.as_shape(1)))
    return [()]


@shape_fn("TensorListSetItem", "TensorListPushBack", "TensorListResize", "TensorListLength")
def tensor_list_changed(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar: the list's handle, or its length."""
    args.set_handle(args.handle(0))
    return [()]


@shape_fn("TensorListGetItem")
def tensor_list_item(args: ShapeArgs) -> Sequence[TensorShape]:
    """An element's shape."""
    return [merge(args.handle(0), args.as_shape(2))]


@shape_fn("TensorListStack")
def tensor_list_stack(args: ShapeArgs) -> Sequence[TensorShape]:
    """The elements one upon another."""
    count = args.node.attr_int("num_elements", UNKNOWN)
    return [concatenate((count,), merge(args.handle(0), args.as_shape(1)))]


@shape_fn("HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2")
def table(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar handle; a reference to one, which holds two texts."""
    return [() if args.node.op.endswith("V2") else (2,)]


@shape_fn("Stage", "CountUpTo", "GetSessionHandleV2")
def one_number(args: ShapeArgs) -> Sequence[TensorShape]:
    """A scalar for each output."""
    return [()] * args.count()
