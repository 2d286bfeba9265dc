"""Where a graph begins and ends, and what to say to a name that it does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from mobileprep.errors import nearest_hint
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import EXITS, PLACEHOLDERS
from mobileprep.ir.refs import parse_ref

_IDLE: Final = frozenset({"Const", "NoOp", "Assert"}) | PLACEHOLDERS
_SHOWN: Final = 5
# The names that TensorFlow's lowering of a While gives to its Exit nodes.
_LOWERED: Final = re.compile(r"/exit/_\d+$")


def placeholders(graph: Graph) -> list[str]:
    """The names of the placeholders that something reads, in graph order; of all if none is read.

    Where TensorFlow 2 lowers loops it leaves placeholders behind that nothing reads.
    """
    found = [n.name for n in graph if n.op in PLACEHOLDERS]
    return [name for name in found if name in graph.consumers] or found


def ends(graph: Graph) -> list[str]:
    """The names of the nodes whose outputs nothing reads, but for constants, in graph order.

    Where TensorFlow 2 lowers a loop, every variable of it leaves it, the counter too: of those that
    nothing reads the graph's author knows nothing.
    """
    found = [n for n in graph if n.name not in graph.consumers and n.op not in _IDLE]
    return [n.name for n in [n for n in found if not leaves_lowered_loop(n)] or found]


def leaves_lowered_loop(node: Node) -> bool:
    """Whether a variable leaves a loop by this node, one that TensorFlow 2 has lowered."""
    return node.op in EXITS and _LOWERED.search(node.name) is not None


def nodes_of(tensors: Iterable[str]) -> frozenset[str]:
    """The names of the nodes that put out some tensors, given as the user names them."""
    return frozenset(parse_ref(tensor).node for tensor in tensors)


def name_hint(graph: Graph, name: str, what: str) -> str:
    """What to say to a node's name that is not in the graph: near names, or the likely ones.

    Args:
        graph: the graph.
        name: the node's name.
        what: ``input`` or ``output``.
    """
    near = nearest_hint(name, graph.by_name)
    if near:
        return near
    is_input = what == "input"
    likely = placeholders(graph) if is_input else ends(graph)
    shown = ", ".join(likely[:_SHOWN]) + (" ..." if len(likely) > _SHOWN else "")
    if not likely:
        return "look at the names in the graph"
    return f"its placeholders are {shown}" if is_input else f"nothing reads {shown}"
