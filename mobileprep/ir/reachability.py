"""What of a graph hangs together: what nodes need, and what needs them."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from typing import TypeVar

from mobileprep.errors import InvalidGraphError, nearest_hint
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref

T = TypeVar("T", bound=Hashable)


def closure(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> set[T]:
    """The starts, what follows them, what follows that, and so on; each is asked for once."""
    waiting = list(dict.fromkeys(starts))
    found = set(waiting)
    while waiting:
        for item in following(waiting.pop()):
            if item not in found:
                found.add(item)
                waiting.append(item)
    return found


def reachable(
    nodes: Graph | Mapping[str, Node],
    roots: Iterable[str],
    fed: Container[Ref] = (),
    *,
    through_control: bool = True,
) -> set[str]:
    """The names of the roots and of all nodes that they depend on.

    Args:
        nodes: every input must name one of them.
        roots: node names.
        fed: inputs that are given, so that nothing is needed for them.
        through_control: whether a control dependency counts.

    Raises:
        InvalidGraphError: a node that is needed is not there.
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
    """The named nodes and all that depend on one of them, directly or not.

    Args:
        graph: the graph.
        names: node names.
        through_control: whether a control dependency counts.
    """

    def takers(name: str) -> Iterable[str]:
        for consumer in graph.consumers.get(name, ()):
            if through_control or any(r.node == name for r in consumer.data_inputs):
                yield consumer.name

    return closure(names, takers)
