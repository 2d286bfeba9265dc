"""Follow variables through a graph to the ops that use them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, MERGES, SWITCHES
from mobileprep.graph.opdefs.definitions import input_types, output_count, signature_of
from mobileprep.graph.reachability import (
    closure,
    drop_unused_functions,
    reachable,
    without_dangling,
)
from mobileprep.graph.refs import Ref
from mobileprep.runtime.functions.inline import FUNCTIONAL, LOOPS

# Ops that pass on a variable unchanged; after conversion, they pass on its value.
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


class Trace(Struct, frozen=True):
    """The uses of the variables that are to be converted.

    Args:
        users: the variable at each input of each op that has to change.
        blocked: (variable, op) for each op that changes a variable or does something else that is
            impossible with a constant.
    """

    users: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    blocked: tuple[tuple[str, str], ...] = ()


def variables_of(graph: Graph) -> list[Node]:
    """Return the variable nodes, in the graph's order."""
    return [n for n in graph if n.op in VARIABLE_OPS]


def trace(graph: Graph, variables: Iterable[Node]) -> Trace:
    """Follow each variable through the ops that pass it on to the ops that use it."""
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
    """Return whether an input of an op is the variable itself, not just its value."""
    definition = signature_of(consumer, graph.library)
    if definition is None:
        # For an unknown op, only the dtype of a resource shows that it needs the variable.
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
        return [Ref(node.name)]  # The second output is an index.
    if node.op in HAND_ON or node.op in REF_FORMS:
        return [Ref(node.name, i) for i in range(output_count(node, graph.library) or 1)]
    if node.op in LOOPS:
        return [Ref(node.name, slot)]
    return []


def extract(graph: Graph, roots: Iterable[str]) -> Graph:
    """Return the roots and their dependencies, with the functions they call."""
    keep = reachable(graph, roots)
    if len(keep) == len(graph):
        return graph
    nodes = without_dangling((n for n in graph if n.name in keep), keep)
    return drop_unused_functions(graph.with_nodes(nodes))


def clear_devices(graph: Graph) -> Graph:
    """Remove the device of every node, including those inside functions."""
    bodies = (f.nodes for f in graph.library.functions.values())
    if not any(n.device for nodes in (graph.nodes, *bodies) for n in nodes):
        return graph
    functions = {
        name: replace(f, nodes=tuple(_without_device(n) for n in f.nodes))
        for name, f in graph.library.functions.items()
    }
    nodes = [_without_device(n) for n in graph]
    return Graph(nodes, Library(functions, graph.library.gradients), graph.versions)


def _without_device(node: Node) -> Node:
    return replace(node, device="") if node.device else node


VARIABLE_OPS: Final = frozenset({"Variable", "VariableV2", "VarHandleOp"})

_WAYS_IN: Final = ENTERS | SWITCHES
_READS: Final = frozenset({"Identity", "ReadVariableOp"}) | _WAYS_IN


def upstream(graph: Graph, ref: Ref) -> Iterator[tuple[Node, int]]:
    """Yield the producer of a tensor, the producer of its first input, and so on, without cycles.

    Each node comes with the index of the output.
    """
    seen: set[str] = set()
    while ref.node not in seen and not ref.is_control:
        seen.add(ref.node)
        node = graph.get(ref.node)
        if node is None:
            return
        yield node, ref.index
        if not node.data_inputs:
            return
        ref = node.inputs[0]


def variable_behind(graph: Graph, ref: Ref) -> Node | None:
    """Return the variable that a tensor is read from, or None."""
    for node, _ in upstream(graph, ref):
        if node.op in VARIABLE_OPS:
            return node
        if node.op not in _READS:
            return None
    return None


def is_inside(graph: Graph, node: Node) -> bool:
    """Return whether an op whose first input is a variable is inside a loop or a branch.

    A variable gets there only through Enter or Switch.
    """
    return bool(node.data_inputs) and any(
        n.op in _WAYS_IN for n, _ in upstream(graph, node.inputs[0])
    )


def is_branch_input(graph: Graph, ref: Ref) -> bool:
    """Return whether a condition selects the branch of an op by this tensor's Switch."""
    node = graph.get(ref.node)
    return node is not None and node.op in SWITCHES


class Flows:
    """The consumers of every node's tensors.

    Each edge is visited only once: a node can have thousands of control inputs, and visiting them
    for each tensor would take quadratic time.

    Args:
        graph: a graph in which all inputs exist.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._takers: dict[str, list[tuple[Node, int]]] = {}
        for node in graph:
            for ref in dict.fromkeys(node.data_inputs):
                self._takers.setdefault(ref.node, []).append((node, ref.index))

    def takers(self, name: str) -> Sequence[tuple[Node, int]]:
        """Return the nodes that use a tensor of a node, each with the index of that output."""
        return self._takers.get(name, ())

    def is_used(self, name: str) -> bool:
        """Return whether any node depends on a node, by data or control."""
        return name in self._graph.consumers

    def takes(self, ref: Ref, names: Container[str]) -> bool:
        """Return whether one of the named nodes uses a tensor."""
        return any(n.name in names for n, index in self.takers(ref.node) if index == ref.index)

    def downstream(self, refs: Iterable[Ref], *, past: Container[str] = ()) -> set[str]:
        """Return the nodes that tensors flow into, directly or indirectly."""
        starts = (n for ref in refs for n, index in self.takers(ref.node) if index == ref.index)

        def takers(name: str) -> Iterable[str]:
            return (node.name for node, _ in self.takers(name) if node.name not in past)

        return closure((n.name for n in starts if n.name not in past), takers)

    def leading_to(self, names: Iterable[str]) -> set[str]:
        """Return the named nodes, and all nodes whose tensors flow into them."""
        return reachable(self._graph, names, through_control=False)
