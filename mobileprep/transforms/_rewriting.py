"""From a rewriting of the graph to a transform's result."""

from __future__ import annotations

from collections.abc import Container

from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import parse_ref
from mobileprep.ir.rewrite import Rewritten
from mobileprep.transforms.base import Context, Result


def fed_and_fetched(context: Context) -> frozenset[str]:
    """The nodes that the user feeds or fetches, which no transform may take away."""
    return frozenset(parse_ref(name).node for name in (*context.inputs, *context.outputs))


def without_orphans(graph: Graph, before: Graph, protected: Container[str]) -> Graph:
    """The graph without the constants that nothing uses any more, though something did before."""
    used = graph.consumers
    return graph.with_nodes(
        node
        for node in graph
        if node.op != "Const"
        or node.name in used
        or node.name in protected
        or node.name not in before.consumers
    )


def as_result(done: Rewritten, before: Graph, context: Context) -> Result:
    """The result of a rewriting.

    The original puts the nodes of a place that it looked at and left in another order; only
    the faithful mode lets that count as a change.
    """
    graph = done.graph if done.matched or context.faithful else before
    return Result(graph, done.matched, done.skipped)
