"""Rename an attribute of nodes."""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import ANY, of_op
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform


@transform("rename_attribute")
class RenameAttribute(Transform, frozen=True):
    """Rename an attribute on every node of an op, with the same value.

    A node that already has an attribute with the new name keeps that one and loses the old one.

    Source: ``rename_attribute`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Gives an attribute of nodes another name."
    of_graph_transform_tool = True

    old_attribute_name: Annotated[str, Option("The attribute.", min_length=1)]
    new_attribute_name: Annotated[str, Option("Its name from now on.", min_length=1)]
    op_name: Annotated[str, Option("The op on whose nodes it is renamed, or `*` for all.")] = ANY

    def apply(self, graph: Graph, context: Context) -> Result:
        if not self.old_attribute_name or not self.new_attribute_name:
            hint = "give old_attribute_name and new_attribute_name"
            raise refuse(self.transform_name, "an attribute's name is empty", hint)
        names = of_op(graph, self.op_name, self.old_attribute_name)
        if not names:
            return Result(graph)
        nodes = [self._renamed(n) if n.name in names else n for n in graph]
        return Result(graph.with_nodes(nodes), len(names))

    def _renamed(self, node: Node) -> Node:
        if self.old_attribute_name not in node.attrs:
            return node  # another node of the same name has the attribute
        attrs = dict(node.attrs)
        value = attrs.pop(self.old_attribute_name)
        attrs.setdefault(self.new_attribute_name, value)
        return replace(node, attrs=attrs)
