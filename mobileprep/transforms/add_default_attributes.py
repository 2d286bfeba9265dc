"""Writes out the attributes that nodes leave at their defaults."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.opdef import OpDef
from mobileprep.ops.opdefs import OLDEST, any_op_def, op_def
from mobileprep.transforms.base import Context, Result, Transform, transform

_UNKNOWN: Final = "nobody knows its op"


@transform("add_default_attributes")
@dataclass(frozen=True)
class AddDefaultAttributes(Transform):
    """Every node has all attributes that its op has defaults for.

    The definitions are those of TensorFlow 1.15, so that it can load the graph; for ops that it
    does not have, those of the newest release. Source: ``add_default_attributes`` of TensorFlow
    1.15's graph transforms, which refuses graphs with ops that it does not know.
    """

    def apply(self, graph: Graph, context: Context) -> Result:
        """Add the missing attributes."""
        skipped: Counter[str] = Counter()
        nodes: list[Node] = []
        changed = 0
        for node in graph:
            definition = _definition(node, graph)
            if definition is None:
                skipped[_UNKNOWN] += 1
                nodes.append(node)
                continue
            filled = _filled(node, definition)
            changed += filled is not node
            nodes.append(filled)
        return Result(graph.with_nodes(nodes) if changed else graph, changed, skipped)


def _definition(node: Node, graph: Graph) -> OpDef | None:
    function = graph.library.functions.get(node.op)
    if function is not None:
        return function.signature
    return op_def(node.op, OLDEST) or any_op_def(node.op)


def _filled(node: Node, definition: OpDef) -> Node:
    missing = {
        a.name: a.default
        for a in definition.attrs
        if a.default is not None and a.name not in node.attrs
    }
    return replace(node, attrs={**node.attrs, **missing}) if missing else node
