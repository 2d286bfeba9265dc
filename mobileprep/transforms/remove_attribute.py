"""Remove an attribute from nodes."""

from __future__ import annotations

from typing import Annotated

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import ANY, of_op
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform


@transform("remove_attribute")
class RemoveAttribute(Transform, frozen=True):
    """Remove an attribute from every node of an op.

    Source: ``remove_attribute`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Takes an attribute off nodes."
    of_graph_transform_tool = True

    attribute_name: Annotated[str, Option("The attribute.", min_length=1)]
    op_name: Annotated[str, Option("The op whose nodes lose it, or `*` for all.")] = ANY

    def apply(self, graph: Graph, context: Context) -> Result:
        name = self.attribute_name
        if not name:
            raise refuse(self.transform_name, "no attribute is named", "give attribute_name")
        names = of_op(graph, self.op_name, name)
        if not names:
            return Result(graph)
        nodes = [n.without_attrs(name) if n.name in names else n for n in graph]
        return Result(graph.with_nodes(nodes), len(names))
