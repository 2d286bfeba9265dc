"""Variables and the ops that read them turned into constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Tensor
from mobileprep.ops.signature import input_types, output_count, signature_of

VARIABLE_OPS: Final = frozenset({"Variable", "VariableV2", "VarHandleOp"})
HANDLE_OP: Final = "VarHandleOp"

# Ops that hand a variable on as it is; a converted variable makes them carry its value.
_HAND_ON: Final = frozenset(
    {"Identity", "Enter", "Exit", "NextIteration", "Switch", "Merge", "_SwitchN"}
)
_REF_FORMS: Final = {
    "RefIdentity": "Identity",
    "RefEnter": "Enter",
    "RefExit": "Exit",
    "RefNextIteration": "NextIteration",
    "RefSwitch": "Switch",
    "RefMerge": "Merge",
}


@dataclass(frozen=True)
class Trace:
    """Who uses the variables that are to be converted.

    Args:
        users: for each op that reads or hands on a variable, the variable's node; the ops that
            have to change.
        blocked: (variable, op) for each op that changes a variable or does something else that
            cannot be done to a constant.
    """

    users: Mapping[str, str] = field(default_factory=dict)
    blocked: tuple[tuple[str, str], ...] = ()


def variables_of(graph: Graph) -> list[Node]:
    """The variable nodes, in the graph's order."""
    return [n for n in graph if n.op in VARIABLE_OPS]


def trace(graph: Graph, variables: Iterable[Node]) -> Trace:
    """Follow each variable through the ops that hand it on to the ops that use it."""
    users: dict[str, str] = {}
    blocked: list[tuple[str, str]] = []
    for variable in variables:
        waiting = [Ref(variable.name)]
        seen = set(waiting)
        while waiting:
            here = waiting.pop()
            for consumer in graph.consumers.get(here.node, ()):
                for slot, ref in enumerate(consumer.inputs):
                    if ref != here or not _is_affected(graph, consumer, slot, variable):
                        continue
                    if not _can_change(consumer):
                        blocked.append((variable.name, consumer.name))
                        continue
                    users[consumer.name] = variable.name
                    fresh = [r for r in _handed_on(graph, consumer) if r not in seen]
                    seen.update(fresh)
                    waiting.extend(fresh)
    return Trace(users, tuple(dict.fromkeys(blocked)))


def _is_affected(graph: Graph, consumer: Node, slot: int, variable: Node) -> bool:
    """Whether an op takes the variable itself at an input, and not just its value."""
    definition = signature_of(consumer, graph.library)
    if definition is None:
        # Of an op that nobody knows, only a resource's type tells that it wants the variable.
        return variable.op == HANDLE_OP
    dtypes = input_types(consumer, definition)
    return slot >= len(dtypes) or dtypes[slot].is_ref or dtypes[slot] is DType.RESOURCE


def _can_change(consumer: Node) -> bool:
    return consumer.op in _CONVERSIONS or consumer.op in _HAND_ON or consumer.op in _REF_FORMS


def _handed_on(graph: Graph, node: Node) -> list[Ref]:
    if node.op in ("Merge", "RefMerge"):
        return [Ref(node.name)]  # the second output is a number
    if node.op in _HAND_ON or node.op in _REF_FORMS:
        return [Ref(node.name, i) for i in range(output_count(node, graph.library) or 1)]
    return []


def convert(graph: Graph, values: Mapping[str, Tensor], uses: Trace) -> Graph:
    """Put constants in the variables' places, under their names.

    Args:
        graph: without the ops that ``uses`` calls blocked.
        values: the value of each variable node.
        uses: what ``trace`` found for those variables.
    """
    nodes: list[Node] = []
    for node in graph:
        if node.name in values:
            nodes.append(constant(node.name, values[node.name]))
        elif node.name in uses.users:
            dtype = values[uses.users[node.name]].dtype
            nodes.extend(_converted(graph, node, dtype))
        else:
            nodes.append(node)
    return graph.with_nodes(nodes)


def _converted(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    conversion = _CONVERSIONS.get(node.op)
    if conversion is not None:
        return conversion(graph, node, dtype)
    plain = replace(node, op=_REF_FORMS.get(node.op, node.op))
    return [plain.with_attrs(T=attr.dtype(dtype)).without_attrs("_output_shapes")]


def _read(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    # Whatever the read waited for cannot change a constant, so control inputs go.
    return [_successor(node, "Identity", node.inputs[:1], T=attr.dtype(dtype))]


def _gather(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    index_type = node.attr_dtype("Tindices")
    batch_dims = node.attr_int("batch_dims", 0)
    name = f"{node.name}/axis"
    while name in graph:
        name += "_"
    axis = constant(name, Tensor.of(np.array(batch_dims, index_type.numpy)))
    extra = {"batch_dims": attr.integer(batch_dims)} if batch_dims else {}
    gather = _successor(
        node,
        "GatherV2",
        (*node.inputs[:2], Ref(name), *node.control_inputs),
        Tparams=attr.dtype(dtype),
        Tindices=node.attrs["Tindices"],
        Taxis=node.attrs["Tindices"],
        **extra,
    )
    return [axis, gather]


def _gather_nd(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    types = {"Tparams": attr.dtype(dtype), "Tindices": node.attrs["Tindices"]}
    return [_successor(node, "GatherNd", node.inputs, **types)]


def _shape(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    types = {"T": attr.dtype(dtype)}
    if "out_type" in node.attrs:
        types["out_type"] = node.attrs["out_type"]
    return [_successor(node, "Shape", node.inputs, **types)]


def _initialized(graph: Graph, node: Node, dtype: DType) -> list[Node]:
    return [constant(node.name, Tensor.of(np.array(True)), node.device, node.control_inputs)]


def _successor(node: Node, op: str, inputs: tuple[Ref, ...], **types: attr.AttrValue) -> Node:
    kept = {k: v for k, v in node.attrs.items() if k == "_class"}
    return Node(node.name, op, inputs, node.device, {**types, **kept})


_CONVERSIONS: Final[Mapping[str, Callable[[Graph, Node, DType], list[Node]]]] = {
    "ReadVariableOp": _read,
    "ResourceGather": _gather,
    "ResourceGatherNd": _gather_nd,
    "VariableShape": _shape,
    "IsVariableInitialized": _initialized,
    "VarIsInitializedOp": _initialized,
}
