"""Rules for all graphs: unique names, existing inputs, and no cycles."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from mobileprep.errors import InvalidGraphError, nearest_hint
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import MERGES, NEXT_ITERATIONS
from mobileprep.graph.reachability import name_hint
from mobileprep.graph.refs import CONTROL, parse_ref

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*\Z|_[A-Za-z0-9_.\\/>-]*\Z")
# Maximum number of nodes of a cycle to show.
_SHOWN = 8


def check_graph(graph: Graph, where: str) -> None:
    """Check the rules that all consumers of a graph rely on.

    Raises:
        InvalidGraphError: if the graph violates one.
    """
    check_names(graph, where)
    check_inputs(graph, where)
    execution_order(graph, where)


def check_names(graph: Graph, where: str) -> None:
    """Check that node names are valid and unique."""
    counts = Counter(n.name for n in graph)
    for name, count in counts.items():
        if count > 1:
            message = f"{count} nodes have the name {name!r}"
            raise InvalidGraphError(message, "export the graph again", where)
        if not _NAME.match(name):
            message = f"{name!r} is not a valid node name"
            raise InvalidGraphError(message, "export the graph again", where)


def check_inputs(graph: Graph, where: str) -> None:
    """Check that all inputs exist, and that tensors precede control dependencies."""
    names = graph.by_name
    for node in graph:
        controls = False
        for ref in node.inputs:
            if ref.node not in names:
                message = f"node {node.name!r} ({node.op}) takes {str(ref)!r}, which does not exist"
                raise InvalidGraphError(message, nearest_hint(ref.node, names), where)
            is_control = ref.index == CONTROL
            if controls and not is_control:
                message = f"node {node.name!r} takes the tensor {str(ref)!r} after a control input"
                raise InvalidGraphError(message, "export the graph again", where)
            controls = controls or is_control


def check_tensors(graph: Graph, names: Iterable[str], what: str, where: str) -> None:
    """Check that tensors named by a user exist.

    Args:
        names: tensor names such as "probabilities" or "split:1".
    """
    for name in names:
        node = parse_ref(name).node
        if node not in graph:
            message = f"the {what} {name!r} is not in the graph"
            raise InvalidGraphError(message, name_hint(graph, node, what), where)


def execution_order(graph: Graph, where: str) -> list[Node]:
    """Return the nodes after their inputs, and otherwise in stored order where possible.

    Edges that close a while loop are ignored.

    Raises:
        InvalidGraphError: if an input does not exist, or there is another cycle.
    """
    check_inputs(graph, where)
    names = graph.by_name
    waiting: dict[str, int] = {}
    for node in graph:
        waiting[node.name] = len(
            {r.node for r in node.inputs if not _closes_loop(graph, node, r.node)}
        )
    ready = [n for n in reversed(graph.nodes) if waiting[n.name] == 0]
    order: list[Node] = []
    while ready:
        node = ready.pop()
        order.append(node)
        for consumer in reversed(graph.consumers.get(node.name, ())):
            if _closes_loop(graph, consumer, node.name):
                continue
            waiting[consumer.name] -= 1
            if waiting[consumer.name] == 0:
                ready.append(names[consumer.name])
    if len(order) < len(names):
        raise _cycle(graph, {n.name for n in order}, where)
    return order


def _closes_loop(graph: Graph, consumer: Node, producer: str) -> bool:
    return consumer.op in MERGES and graph[producer].op in NEXT_ITERATIONS


def _cycle(graph: Graph, done: set[str], where: str) -> InvalidGraphError:
    """Follow unfinished inputs backwards until a node repeats."""
    name = next(n.name for n in graph if n.name not in done)
    trail: dict[str, None] = {}  # An ordered set.
    while name not in trail:
        trail[name] = None
        node = graph[name]
        name = next(
            r.node
            for r in node.inputs
            if r.node not in done and not _closes_loop(graph, node, r.node)
        )
    passed = list(trail)
    circle = [*passed[passed.index(name) :], name]
    shown = " <- ".join(circle[:_SHOWN]) + (" ..." if len(circle) > _SHOWN else "")
    message = f"nodes feed each other in a circle: {shown}"
    return InvalidGraphError(message, "break the circle, or export the graph again", where)
