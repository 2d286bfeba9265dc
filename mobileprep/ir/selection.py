"""Nodes picked by op and attribute."""

from __future__ import annotations

from typing import Final

from mobileprep.ir.graph import Graph

ANY: Final = "*"


def of_op(graph: Graph, op: str, attribute: str) -> frozenset[str]:
    """The nodes of an op, or of any op for ``*``, that have an attribute."""
    return frozenset(n.name for n in graph if op in (ANY, n.op) and attribute in n.attrs)
