"""Control flow, variables, and nodes without arithmetic."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType, dtype_from_numpy
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.array.identity import declared_once_shape
from mobileprep.ops.kernel import (
    STREAMS,
    Printed,
    RunContext,
    context_kernel,
    flop_rule,
    free,
    kernel,
)
from mobileprep.ops.numerics.differences import edges, summary
from mobileprep.ops.numerics.texts import one_text
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    behind_handle,
    common,
    concatenate,
    declared_shape,
    merge,
    no_outputs,
    scalars_only,
    shape_fn,
    unchanged,
)

# Each round can make a size or a rank unknown; few loops change more than one.
_MOST_ROUNDS: Final = 16


@shape_fn("Switch", "RefSwitch")
def switch_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape for both outputs."""
    return [args.shapes[0]] * 2


flop_rule("Switch")(free)


@shape_fn("Merge", "RefMerge")
def merge_branches_shape(args: ShapeArgs) -> OutputShapes:
    """Return the common shape of all inputs, and a scalar index."""
    return [common(args.shapes), ()]


flop_rule("Merge")(free)


@shape_fn("Enter")
def enter_shape(args: ShapeArgs) -> OutputShapes:
    """Return the input's shape, unless an iteration of the loop may change it."""
    return [args.shapes[0] if args.node.attr_bool("is_constant", False) else None]


flop_rule("Enter")(free)


shape_fn("Exit", "NextIteration", "RefEnter", "RefExit", "RefNextIteration")(unchanged)


flop_rule("Exit", "NextIteration")(free)


@shape_fn("Case", "StatelessCase")
def declared_outputs_shape(args: ShapeArgs) -> OutputShapes:
    """Return the declared output shapes, if there are any."""
    return _declared(args) or [None] * args.count()


@shape_fn("If", "StatelessIf")
def if_shape(args: ShapeArgs) -> OutputShapes:
    """Return the declared shapes, or the common shapes of both branches."""
    declared = _declared(args)
    if declared:
        return declared
    ways = [args.called(name, args.shapes[1:]) for name in ("then_branch", "else_branch")]
    return [common(pair) for pair in zip(*ways, strict=True)]


@shape_fn("StatelessWhile", "While")
def while_shape(args: ShapeArgs) -> OutputShapes:
    """Return the declared shapes, or each variable's common shape over all iterations."""
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


def _declared(args: ShapeArgs) -> OutputShapes:
    return args.node.attr_shapes("output_shapes") if "output_shapes" in args.node.attrs else ()


_FILE = "file://"


@context_kernel("Print", shape=unchanged, flops=free)
def print_tensors(context: RunContext, node: Node, x: Array, *data: Array) -> Array:
    """Print the message and the data, and return the first input unchanged."""
    first = node.attr_int("first_n", -1)
    if context.printer is None:
        return x
    if first >= 0:
        key = f"how often {node.name} printed"
        printed = context.resources.setdefault(key, 0)
        if printed >= first:
            return x
        context.resources[key] = printed + 1
    text = node.attr_str("message", "") + _all(node, "U", data)
    context.printer(Printed(node.name, "stderr", f"{text}\n"))
    return x


def _all(node: Node, types: str, data: tuple[Array, ...], between: str = "") -> str:
    """Format each tensor in brackets, with the number of elements from the node."""
    count = node.attr_int("summarize", 3)
    pairs = zip(data, _types(node, types, data), strict=True)
    return between.join(f"[{summary(x, t, count)}]" for x, t in pairs)


def _types(node: Node, name: str, data: tuple[Array, ...]) -> list[DType]:
    """Return the types of inputs from the node, or else from their arrays."""
    types = [t.base for t in node.attr_dtypes(name)] if name in node.attrs else []
    if len(types) == len(data):
        return types
    return [dtype_from_numpy(x.dtype) or DType.STRING for x in data]


@context_kernel("PrintV2", shape=no_outputs, flops=free)
def print_text(context: RunContext, node: Node, text: Array) -> tuple[Array, ...]:
    """Print a string."""
    stream = node.attr_str("output_stream", "stderr")
    if stream not in STREAMS and not stream.startswith(_FILE):
        message = f"unknown output stream {stream!r}"
        raise InvalidGraphError(message, f"TensorFlow knows {', '.join(STREAMS)} and {_FILE}PATH")
    output = one_text(text).decode("utf-8", "replace") + node.attr_str("end", "\n")
    if context.printer is not None:
        context.printer(Printed(node.name, stream, output))
    return ()


@kernel("StringFormat", shape=scalars_only, flops=free)
def string_format(node: Node, *data: Array) -> Array:
    """Replace each placeholder of the template with the content of the next input."""
    count = node.attr_int("summarize", 3)
    pieces = node.attr_str("template", "%s").split(node.attr_str("placeholder", "%s"))
    if len(pieces) != len(data) + 1:
        message = f"the template has {len(pieces) - 1} places for {len(data)} tensors"
        raise ValueError(message)
    types = _types(node, "T", data)
    shown = [edges(x, t, count) for x, t in zip(data, types, strict=True)]
    text = pieces[0] + "".join(s + p for s, p in zip(shown, pieces[1:], strict=True))
    return np.array(text.encode(), dtype=object)


@kernel("Assert", shape=no_outputs, flops=free)
def assert_true(node: Node, condition: Array, *data: Array) -> tuple[Array, ...]:
    """Raise an error if the condition is false."""
    if condition.ndim:
        message = f"the condition should be a scalar, not of shape {list(condition.shape)}"
        raise ValueError(message)
    if bool(condition):
        return ()
    message = f"assertion failed: {_all(node, 'T', data, ' ')}"
    raise InvalidGraphError(message, "check the shapes and values that are fed")


shape_fn("VariableV2")(declared_shape)


shape_fn("Variable")(declared_once_shape)


@shape_fn("VarHandleOp")
def var_handle_shape(args: ShapeArgs) -> OutputShapes:
    """Return the scalar shape of a handle of a variable."""
    args.set_handle(args.node.attr_shape("shape"))
    return [()]


shape_fn("ReadVariableOp")(behind_handle)


@shape_fn("ResourceGather")
def resource_gather_shape(args: ShapeArgs) -> OutputShapes:
    """Return the variable's shape with the first dimension replaced by the indices' shape."""
    variable = args.handle(0)
    batch = args.node.attr_int("batch_dims", 0)
    if variable is None or args.shapes[1] is None or batch:
        return [None]
    return [concatenate(args.shapes[1], variable[1:])]


@shape_fn("VariableShape")
def variable_shape(args: ShapeArgs) -> OutputShapes:
    """Return a vector with an element for each of the variable's dimensions."""
    variable = args.handle(0)
    return [(UNKNOWN if variable is None else len(variable),)]


@shape_fn("Assign", "AssignAdd", "AssignSub")
def assign_shape(args: ShapeArgs) -> OutputShapes:
    """Return the common shape of the variable and its new value."""
    if args.node.op == "Assign" and not args.node.attr_bool("validate_shape", True):
        return [args.shapes[1]]
    return [merge(args.shapes[0], args.shapes[1])]


shape_fn("CountUpTo", "GetSessionHandleV2", "IsVariableInitialized", "Stage", "VarIsInitializedOp")(
    scalars_only
)
