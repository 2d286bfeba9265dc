"""Add default values for missing node attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from mobileprep.graph.attrs import AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import default_attrs
from mobileprep.transforms.base import Context, Result, Transform, transform

_UNKNOWN: Final = "its op is unknown"


@transform("add_default_attributes")
class AddDefaultAttributes(Transform, frozen=True):
    """Add all attributes that have a default in the op's definition.

    The definitions are those of TensorFlow 1.15, so that it can load the graph. Ops that 1.15 does
    not have use the definitions of the newest release. Source: ``add_default_attributes`` of
    TensorFlow 1.15's graph transforms, which rejects graphs with unknown ops.
    """

    summary = "Writes out the attributes that nodes leave at their defaults."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        skipped: Counter[str] = Counter()
        nodes: list[Node] = []
        changed = 0
        defaults = {op: default_attrs(op, graph.library) for op in {n.op for n in graph}}
        for node in graph:
            attrs = defaults[node.op]
            if attrs is None:
                skipped[_UNKNOWN] += 1
                nodes.append(node)
                continue
            filled = _filled(node, attrs)
            changed += filled is not node
            nodes.append(filled)
        return Result(graph.with_nodes(nodes) if changed else graph, changed, skipped)


def _filled(node: Node, defaults: Mapping[str, AttrValue]) -> Node:
    missing = {k: v for k, v in defaults.items() if k not in node.attrs}
    return replace(node, attrs={**node.attrs, **missing}) if missing else node
