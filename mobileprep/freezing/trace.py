"""Follows variables through a graph to the ops that use them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.freezing.follow import VARIABLE_OPS
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import MERGES
from mobileprep.ir.refs import Ref
from mobileprep.opdefs.signatures import input_types, output_count, signature_of
from mobileprep.runtime.functions.splice import FUNCTIONAL, LOOPS

# Ops that hand a variable on as it is; a converted variable makes them carry its value.
HAND_ON: Final = frozenset(
    {"Identity", "Enter", "Exit", "NextIteration", "Switch", "Merge", "_SwitchN"}
)
REF_FORMS: Final = {
    "RefIdentity": "Identity",
    "RefEnter": "Enter",
    "RefExit": "Exit",
    "RefNextIteration": "NextIteration",
    "RefSwitch": "Switch",
    "RefMerge": "Merge",
}
READS: Final = frozenset(
    {
        "ReadVariableOp",
        "ResourceGather",
        "ResourceGatherNd",
        "VariableShape",
        "IsVariableInitialized",
        "VarIsInitializedOp",
    }
)


@dataclass(frozen=True)
class Trace:
    """Who uses the variables that are to be converted.

    Args:
        users: the ops that have to change, each with the variable that it takes at an input.
        blocked: (variable, op) for each op that changes a variable or does something else that
            cannot be done to a constant.
    """

    users: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    blocked: tuple[tuple[str, str], ...] = ()


def variables_of(graph: Graph) -> list[Node]:
    """The variable nodes, in the graph's order."""
    return [n for n in graph if n.op in VARIABLE_OPS]


def trace(graph: Graph, variables: Iterable[Node]) -> Trace:
    """Follow each variable through the ops that hand it on to the ops that use it."""
    users: dict[str, dict[int, str]] = {}
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
                    if not _can_change(consumer, slot):
                        blocked.append((variable.name, consumer.name))
                        continue
                    users.setdefault(consumer.name, {})[slot] = variable.name
                    fresh = [r for r in _handed_on(graph, consumer, slot) if r not in seen]
                    seen.update(fresh)
                    waiting.extend(fresh)
    return Trace(users, tuple(dict.fromkeys(blocked)))


def _is_affected(graph: Graph, consumer: Node, slot: int, variable: Node) -> bool:
    """Whether an op takes the variable itself at an input, and not just its value."""
    definition = signature_of(consumer, graph.library)
    if definition is None:
        # Of an op that nobody knows, only a resource's type tells that it wants the variable.
        return variable.op not in ("Variable", "VariableV2")
    dtypes = input_types(consumer, definition)
    return slot >= len(dtypes) or dtypes[slot].is_ref or dtypes[slot] is DType.RESOURCE


def _can_change(consumer: Node, slot: int) -> bool:
    functional = FUNCTIONAL.get(consumer.op)
    if functional is not None:
        return slot >= functional.first
    return consumer.op in READS or consumer.op in HAND_ON or consumer.op in REF_FORMS


def _handed_on(graph: Graph, node: Node, slot: int) -> list[Ref]:
    if node.op in MERGES:
        return [Ref(node.name)]  # the second output is a number
    if node.op in HAND_ON or node.op in REF_FORMS:
        return [Ref(node.name, i) for i in range(output_count(node, graph.library) or 1)]
    if node.op in LOOPS:
        return [Ref(node.name, slot)]
    return []
