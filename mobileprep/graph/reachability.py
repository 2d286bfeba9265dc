"""Dependencies in a graph: the nodes that nodes need, that need them, or that run in branches."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Mapping
from typing import Final, TypeVar

from mobileprep.errors import InvalidGraphError, nearest_hint
from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph, Library
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, PLACEHOLDERS
from mobileprep.graph.op_sets import SWITCHES as TWO_WAY
from mobileprep.graph.refs import Ref, parse_ref

T = TypeVar("T", bound=Hashable)


def closure(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> set[T]:
    """Return the transitive closure of the starts; call ``following`` once for each item."""
    waiting = list(dict.fromkeys(starts))
    items = set(waiting)
    while waiting:
        for item in following(waiting.pop()):
            if item not in items:
                items.add(item)
                waiting.append(item)
    return items


def reachable(
    nodes: Graph | Mapping[str, Node],
    roots: Iterable[str],
    fed: Container[Ref] = (),
    *,
    through_control: bool = True,
) -> set[str]:
    """Return the names of the roots and of all nodes that they depend on.

    Raises:
        InvalidGraphError: if a needed node does not exist.
    """

    def needed(name: str) -> Iterable[str]:
        node = nodes.get(name)
        if node is None:
            message = f"the node {name!r} is needed, and is not in the graph"
            raise InvalidGraphError(message, nearest_hint(name, _names(nodes)))
        for ref in node.inputs:
            if ref not in fed and (through_control or not ref.is_control):
                yield ref.node

    return closure(roots, needed)


def _names(nodes: Graph | Mapping[str, Node]) -> Iterable[str]:
    return nodes.by_name if isinstance(nodes, Graph) else nodes


def dependents(graph: Graph, names: Iterable[str], *, through_control: bool = True) -> set[str]:
    """Return the named nodes and all nodes that depend on one of them, directly or indirectly."""

    def takers(name: str) -> Iterable[str]:
        for consumer in graph.consumers.get(name, ()):
            if through_control or any(r.node == name for r in consumer.data_inputs):
                yield consumer.name

    return closure(names, takers)


_IDLE: Final = frozenset({"Const", "NoOp", "Assert"}) | PLACEHOLDERS
_SHOWN: Final = 5
# Names of Exit nodes from TensorFlow's lowering of a While.
_LOWERED: Final = re.compile(r"/exit/_\d+$")


def placeholders(graph: Graph) -> list[str]:
    """Return the used placeholders in graph order; all placeholders if none is used.

    TensorFlow 2's lowering of loops creates unused placeholders.
    """
    names = [n.name for n in graph if n.op in PLACEHOLDERS]
    return [name for name in names if name in graph.consumers] or names


def ends(graph: Graph) -> list[str]:
    """Return the names of unused nodes except constants, in graph order.

    Lowered loops of TensorFlow 2 have an output for each variable, including counters. Their unused
    outputs are not included, unless there are no other unused nodes.
    """
    nodes = [n for n in graph if n.name not in graph.consumers and n.op not in _IDLE]
    return [n.name for n in [n for n in nodes if not leaves_lowered_loop(n)] or nodes]


def leaves_lowered_loop(node: Node) -> bool:
    """Return whether a node is the Exit of a variable from a loop that TensorFlow 2 lowered."""
    return node.op in EXITS and _LOWERED.search(node.name) is not None


def nodes_of(tensors: Iterable[str]) -> frozenset[str]:
    """Return the node names of tensors, as the user names them."""
    return frozenset(parse_ref(tensor).node for tensor in tensors)


def name_hint(graph: Graph, name: str, what: str) -> str:
    """Return a hint for an unknown node name: similar names, or the likely ones."""
    near = nearest_hint(name, graph.by_name)
    if near:
        return near
    is_input = what == "input"
    likely = placeholders(graph) if is_input else ends(graph)
    shown = ", ".join(likely[:_SHOWN]) + (" ..." if len(likely) > _SHOWN else "")
    if not likely:
        return "look at the names in the graph"
    return f"its placeholders are {shown}" if is_input else f"nothing reads {shown}"


def unused(graph: Graph, names: Iterable[str], stays: Callable[[Node], bool]) -> set[str]:
    """Return those of the nodes that are unused, and nodes that are unused without them."""
    counts = {name: len(nodes) for name, nodes in graph.consumers.items()}
    waiting = list(names)
    gone: set[str] = set()
    while waiting:
        name = waiting.pop()
        node = graph.get(name)
        if node is None or name in gone or counts.get(name, 0) or stays(node):
            continue
        gone.add(name)
        for source in {r.node for r in node.inputs}:
            counts[source] -= 1
            waiting.append(source)
    return gone


def without_newly_unused(before: Graph, after: Graph, protected: Collection[str]) -> Graph:
    """Remove the nodes that are unused because of a change."""
    gone = unused(after, before.consumers, lambda node: node.name in protected)
    nodes = [n for n in after if n.name not in gone]
    return after.with_nodes(without_dangling(nodes, {n.name for n in nodes}))


def without_orphans(graph: Graph, before: Graph, protected: Container[str]) -> Graph:
    """Remove constants that were used before a change and are unused now."""
    used = graph.consumers
    return graph.with_nodes(
        node
        for node in graph
        if node.op != "Const"
        or node.name in used
        or node.name in protected
        or node.name not in before.consumers
    )


_MERGES: Final = frozenset({"Merge", "RefMerge", "_XlaMerge"})


def execution_order(graph: Graph) -> list[Node]:
    """Return nodes after their inputs, in the order of TensorFlow 1.15's graph transforms.

    Of several ready nodes, the one that was found last is next. A Merge waits for its control
    inputs and one tensor, so that while loops can be sorted. Nodes of a cycle or with missing
    inputs, and nodes that depend on them, are not included.

    Source: ``SortByExecutionOrder`` of TensorFlow 1.15's graph transforms.
    """
    nodes = graph.nodes
    position = {node.name: i for i, node in enumerate(nodes)}
    consumers: list[list[int]] = [[] for _ in nodes]
    pending: list[int] = []
    ready: list[int] = []
    for i, node in enumerate(nodes):
        inputs = node.inputs
        if node.op in _MERGES:
            pending.append(len(node.control_inputs) + 1)
        else:
            pending.append(len(inputs))
        if not inputs:
            ready.append(i)
        for ref in inputs:
            producer = position.get(ref.node)
            if producer is not None:
                consumers[producer].append(i)
    order: list[Node] = []
    while ready:
        i = ready.pop()
        order.append(nodes[i])
        for consumer in consumers[i]:
            pending[consumer] -= 1
            if not pending[consumer]:
                ready.append(consumer)
    return order


_CLASS: Final = "_class"
_PREFIX: Final = b"loc:@"


def without_dangling(nodes: Iterable[Node], names: Container[str]) -> list[Node]:
    """Remove colocation constraints on nodes that are not in ``names``.

    TensorFlow does not load graphs with colocation constraints on unknown nodes.
    """

    def existing_name(name: str) -> str | None:
        return name if name in names else None

    return [colocated(n, existing_name) for n in nodes]


def colocated(node: Node, new_name: Callable[[str], str | None]) -> Node:
    """Rename the nodes in colocation constraints; drop those whose new name is None."""
    constraints = node.attrs.get(_CLASS)
    if constraints is None or constraints.kind != "list(string)":
        return node
    entries = tuple(
        entry for old in constraints.value if (entry := _entry(old, new_name)) is not None
    )
    if entries == constraints.value:
        return node
    if not entries:
        return node.without_attrs(_CLASS)
    return node.with_attrs(_class=AttrValue("list(string)", entries))


def _entry(entry: bytes, new_name: Callable[[str], str | None]) -> bytes | None:
    if not entry.startswith(_PREFIX):
        return entry
    name = new_name(entry[len(_PREFIX) :].decode("utf-8", "surrogateescape"))
    return None if name is None else _PREFIX + name.encode("utf-8", "surrogateescape")


ANY: Final = "*"


SWITCHES: Final = TWO_WAY | {"_SwitchN"}
_GATES: Final = SWITCHES | ENTERS
GATES: Final = TWO_WAY | ENTERS | EXITS | MERGES | NEXT_ITERATIONS
"""Ops of branches and loops in control flow v1."""


def conditional_nodes(graph: Graph) -> frozenset[str]:
    """Return the gates of branches and loops, and all nodes that depend on one by data or control.

    Control inputs of such nodes do not only affect the order: they decide whether a node runs, and
    in which iteration of a loop.
    """
    return frozenset(dependents(graph, [n.name for n in graph if n.op in _GATES]))


def loop_nodes(graph: Graph) -> frozenset[str]:
    """Return the gates of loops, and all nodes that depend on one by data or control.

    A node in a loop without another input from the loop needs a control input from it. Nodes in
    branches do not: a node with a dead input does not run.
    """
    return frozenset(dependents(graph, [n.name for n in graph if n.op in ENTERS]))


def drop_unused_functions(graph: Graph) -> Graph:
    """Keep only the functions that the nodes of a graph reach, and their gradients."""
    library = graph.library
    if not library.functions:
        return graph
    used = closure(
        _called(graph.nodes, library),
        lambda name: _called(library.functions[name].nodes, library),
    )
    if len(used) == len(library.functions):
        return graph
    functions = {k: v for k, v in library.functions.items() if k in used}
    gradients = tuple((f, g) for f, g in library.gradients if f in used and g in used)
    return Graph(graph.nodes, Library(functions, gradients), graph.versions)


def _called(nodes: Iterable[Node], library: Library) -> set[str]:
    names = set()
    for node in nodes:
        names.add(node.op)
        for value in node.attrs.values():
            if value.kind == "func":
                names.add(value.value.name)
            elif value.kind == "list(func)":
                names.update(f.name for f in value.value)
    return names & library.functions.keys()
