"""Rename a node."""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import colocated
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform


@transform("rename_node")
class RenameNode(Transform, frozen=True):
    """Rename a node, and update its consumers and colocated nodes.

    Source: ``rename_node`` of the graph transforms of TensorFlow 2.4, which does not update
    colocation constraints.
    """

    summary = "Gives a node another name."
    of_graph_transform_tool = True

    old_node_name: Annotated[str, Option("The node.", min_length=1)]
    new_node_name: Annotated[str, Option("Its name from now on.", min_length=1)]

    def apply(self, graph: Graph, context: Context) -> Result:
        """Rename the node; a node that does not exist causes a warning, not an error."""
        old, new = self.old_node_name, self.new_node_name
        if not old or not new:
            hint = "give old_node_name and new_node_name"
            raise refuse(self.transform_name, "a node's name is empty", hint)
        if new in graph:
            hint = "choose a name that is free"
            raise refuse(self.transform_name, f"there is a node {new!r} already", hint)
        if old not in graph:
            warning = f"{self.transform_name}: the graph has no node {old!r}"
            return Result(graph, warnings=(warning,))
        return Result(graph.with_nodes(self._renamed(n) for n in graph), 1)

    def _renamed(self, node: Node) -> Node:
        old, new = self.old_node_name, self.new_node_name
        if any(r.node == old for r in node.inputs):
            inputs = tuple(r.renamed(new) if r.node == old else r for r in node.inputs)
            node = replace(node, inputs=inputs)
        if node.name == old:
            node = replace(node, name=new)
        return colocated(node, lambda name: new if name == old else name)
