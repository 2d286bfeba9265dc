"""Which graphs a report page tells the nodes of."""

from __future__ import annotations

from typing import Final

from mobileprep.ir.graph import Graph

MOST_NODES: Final = 50_000
"""A page tells of no more: browsers take long to read it."""
_MOST_TEXT: Final = 16 << 20


def left_out(graph: Graph) -> str:
    """Why a page tells nothing of a graph's nodes; empty where it does."""
    if len(graph) > MOST_NODES:
        return f"it has {len(graph):,} nodes, and a page tells of {MOST_NODES:,} at most"
    text = sum(len(node.name) for node in graph)
    if text > _MOST_TEXT:
        return f"the names of its nodes have {text:,} letters, and a page has {_MOST_TEXT:,}"
    return ""
