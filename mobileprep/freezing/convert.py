"""Convert variables to constants, in the graph and in functions that receive them as arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.freezing.trace import HAND_ON, REF_FORMS, Trace, is_inside, trace
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import AttrValue, FuncRef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import Node, constant
from mobileprep.graph.opdefs.bodies import Body, body_of, function_of
from mobileprep.graph.refs import Ref, control
from mobileprep.graph.tensor import Tensor
from mobileprep.runtime.functions.inline import FUNCTIONAL, LOOPS, Functional, inline_calls

_ARGUMENT: Final = "_Arg"
_DEEPEST: Final = 64
_CHANGED: Final = (
    "lower loops and conditionals (control_flow: lower, or `mobileprep freeze "
    "--control_flow=lower`), choose other outputs, or list the variable under "
    "variable_names_blacklist"
)


def convert(graph: Graph, values: Mapping[str, Tensor], uses: Trace, where: str) -> Graph:
    """Replace variables with constants of the same names.

    A function that a loop or conditional calls with a variable is replaced with a copy that takes
    the value instead. The name of the copy ends in "_frozen".
    """
    if not values:
        return graph
    functions = _Functions(graph.library, where)
    types = {name: value.dtype for name, value in values.items()}
    nodes: list[Node] = []
    held = {n.name for n in graph if n.name in values and n.op != "VarHandleOp"}
    for node in graph:
        if node.name in values:
            nodes.append(constant(node.name, values[node.name], inputs=node.control_inputs))
        elif _passes(node) and node.inputs[0].node in held:
            # Like the original, drop the recorded shape of the variable.
            held.add(node.name)
            nodes.append(node.without_attrs("_output_shapes"))
        else:
            nodes.extend(functions.converted(graph, node, uses, types))
    return Graph(nodes, functions.library, graph.versions)


def _passes(node: Node) -> bool:
    return node.op in HAND_ON and node.op != "Merge" and bool(node.data_inputs)


class _Functions:
    """A function library that grows by copies of functions that take values."""

    def __init__(self, library: Library, where: str) -> None:
        self._original = library
        self._where = where
        self._added: dict[str, Function] = {}
        self._copies: dict[tuple[str, tuple[tuple[int, DType], ...]], str] = {}
        self._depth = 0

    @property
    def library(self) -> Library:
        if not self._added:
            return self._original
        return Library({**self._original.functions, **self._added}, self._original.gradients)

    def converted(
        self, graph: Graph, node: Node, uses: Trace, types: Mapping[str, DType]
    ) -> list[Node]:
        """Return the replacements of a node once its variables are values."""
        slots = uses.users.get(node.name)
        if not slots:
            return [node]
        functional = FUNCTIONAL.get(node.op)
        if functional is None:
            return converted_user(graph, node, types[next(iter(slots.values()))])
        args = {slot - functional.first: types[name] for slot, name in sorted(slots.items())}
        return [self._handing_values(node, functional, args)]

    def _handing_values(
        self, node: Node, functional: Functional, args: Mapping[int, DType]
    ) -> Node:
        def copied(func: FuncRef) -> FuncRef:
            is_body = node.op in LOOPS and func == node.attr_func("body")
            return FuncRef(self._copy(func, args, gives_back=is_body), func.attrs)

        changes: dict[str, AttrValue] = {}
        for name in functional.functions:
            value = node.attrs.get(name)
            if value is not None and value.kind == "func":
                changes[name] = AttrValue("func", copied(value.value))
            elif value is not None and value.kind == "list(func)":
                changes[name] = AttrValue("list(func)", tuple(map(copied, value.value)))
        types = list(node.attr_dtypes(functional.types))
        for index, dtype in args.items():
            types[index] = dtype
        changes[functional.types] = AttrValue("list(type)", tuple(types))
        if "output_shapes" in node.attrs and node.op in LOOPS:
            shapes = list(node.attr_shapes("output_shapes"))
            for index in args:
                shapes[index : index + 1] = [None] * (index < len(shapes))
            changes["output_shapes"] = AttrValue("list(shape)", tuple(shapes))
        return node.with_attrs(**changes).without_attrs("_output_shapes")

    def _copy(self, func: FuncRef, args: Mapping[int, DType], *, gives_back: bool) -> str:
        """Return the name of a copy of the function in which these arguments are values."""
        key = (func.name, tuple(sorted(args.items())))
        if key not in self._copies:
            name = f"{func.name}_frozen"
            while name in self._original.functions or name in self._added:
                name += "_"
            self._copies[key] = name
            self._depth += 1
            function = self._convert(func, args, gives_back=gives_back)
            self._depth -= 1
            signature = replace(function.signature, name=name)
            self._added[name] = replace(function, signature=signature)
        return self._copies[key]

    def _convert(self, func: FuncRef, args: Mapping[int, DType], *, gives_back: bool) -> Function:
        if self._depth > _DEEPEST:
            message = f"functions are nested more than {_DEEPEST} deep"
            raise UnsupportedError(message, "export the model again", self._where)
        function = self._original.functions.get(func.name)
        if function is None or max(args) >= len(function.signature.inputs):
            message = f"the function {func.name!r} does not exist, or accepts fewer arguments"
            raise InvalidGraphError(message, "export the model again", self._where)
        body = body_of(function, self._original, func.attrs)
        types = {body.args[index].node: dtype for index, dtype in args.items()}
        arguments = [_argument(ref.node, index) for index, ref in enumerate(body.args)]
        graph = Graph([*arguments, *body.nodes], self._original)
        graph = inline_calls(graph, {*(r.node for r in body.rets), *body.control_rets}, self._where)
        uses = trace(graph, [a for a in arguments if a.name in types])
        self._check(function, graph, body, uses)
        nodes = [n for node in graph for n in self.converted(graph, node, uses, types)]
        body_nodes = tuple(n for n in nodes if n.op != _ARGUMENT)
        changed = _with_types(function, args, gives_back=gives_back)
        return function_of(replace(body, nodes=body_nodes), changed, self.library)

    def _check(self, function: Function, graph: Graph, body: Body, uses: Trace) -> None:
        if uses.blocked:
            op = graph[uses.blocked[0][1]].op
            message = f"the function {function.name!r} changes a variable ({op})"
            raise UnsupportedError(message, _CHANGED, self._where)


def _argument(name: str, index: int) -> Node:
    return Node(name, _ARGUMENT, attrs={"index": attr.integer(index)})


def _with_types(function: Function, args: Mapping[int, DType], *, gives_back: bool) -> Function:
    """Change the argument types of a function, and drop its records about these arguments."""
    signature = function.signature
    inputs = list(signature.inputs)
    outputs = list(signature.outputs)
    for index, dtype in args.items():
        inputs[index] = replace(inputs[index], dtype=dtype, handle_data=())
        if gives_back and index < len(outputs):
            outputs[index] = replace(outputs[index], dtype=dtype, handle_data=())
    return replace(
        function,
        signature=replace(signature, inputs=tuple(inputs), outputs=tuple(outputs)),
        attrs={k: v for k, v in function.attrs.items() if k != "_input_shapes"},
        arg_attrs={k: v for k, v in function.arg_attrs.items() if k not in args},
        resource_ids={k: v for k, v in function.resource_ids.items() if k not in args},
    )


def converted_user(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    """Return the nodes that do the same for a constant as a node does for a variable.

    The last node has the name of the original one. The nodes are those of the original tool, except
    that a ResourceGather may have batch dimensions, which the original rejects.
    """
    conversion = _CONVERSIONS.get(node.op)
    if conversion is not None:
        return conversion(graph, node, dtype)
    plain = replace(node, op=REF_FORMS.get(node.op, node.op))
    return [plain.with_attrs(T=attr.dtype(dtype)).without_attrs("_output_shapes")]


def _read(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    # Drop control inputs: they cannot affect a constant.
    return [_successor(node, "Identity", node.inputs[:1], T=attr.dtype(dtype))]


def _gather(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    index_type = node.attr_dtype("Tindices")
    batch_dims = node.attr_int("batch_dims", 0)
    name = f"{node.name}/axis"
    while name in graph:
        name += "_"
    # In a loop, a constant needs a control input there; otherwise it is outside of the loop.
    tied = (control(node.inputs[0].node),) if is_inside(graph, node) else ()
    axis = constant(name, Tensor.of(np.array(batch_dims, index_type.numpy)), inputs=tied)
    extra = {"batch_dims": attr.integer(batch_dims)} if batch_dims else {}
    gather = _successor(
        node,
        "GatherV2",
        (*node.inputs[:2], Ref(name), *node.control_inputs),
        Tparams=attr.dtype(dtype),
        Tindices=attr.dtype(index_type),
        Taxis=attr.dtype(index_type),
        **extra,
    )
    return [axis, gather]


def _gather_nd(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    types = {"Tparams": attr.dtype(dtype), "Tindices": node.attribute("Tindices")}
    return [_successor(node, "GatherNd", node.inputs, **types)]


def _shape(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    types = {"T": attr.dtype(dtype)}
    if "out_type" in node.attrs:
        types["out_type"] = node.attribute("out_type")
    return [_successor(node, "Shape", node.inputs, **types)]


def _initialized(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    truth = Tensor.of(np.array(True))
    if not is_inside(graph, node):
        return [constant(node.name, truth, node.device, node.control_inputs)]
    # In a branch that does not run, the node must not have a value.
    here = Node(f"{node.name}/here", "Identity", node.inputs[:1], "", {"T": attr.dtype(dtype)})
    tied = (control(here.name), *node.control_inputs)
    return [here, constant(node.name, truth, node.device, tied)]


def _successor(node: Node, op: str, inputs: tuple[Ref, ...], **types: AttrValue) -> Node:
    colocation = {k: v for k, v in node.attrs.items() if k == "_class"}
    return Node(node.name, op, inputs, node.device, {**types, **colocation})


_CONVERSIONS: Final[Mapping[str, Callable[[Graph, Node, DType], list[Node]]]] = {
    "ReadVariableOp": _read,
    "ResourceGather": _gather,
    "ResourceGatherNd": _gather_nd,
    "VariableShape": _shape,
    "IsVariableInitialized": _initialized,
    "VarIsInitializedOp": _initialized,
}
