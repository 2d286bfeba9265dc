"""Change nodes of one op to another op."""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform


@transform("rename_op")
class RenameOp(Transform, frozen=True):
    """Change the op of nodes without changing their inputs and attributes.

    Source: ``rename_op`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Turns nodes of one op into nodes of another."
    of_graph_transform_tool = True

    old_op_name: Annotated[str, Option("The op.", min_length=1)]
    new_op_name: Annotated[str, Option("What takes its place.", min_length=1)]

    def apply(self, graph: Graph, context: Context) -> Result:
        if not self.old_op_name or not self.new_op_name:
            hint = "give old_op_name and new_op_name"
            raise refuse(self.transform_name, "an op's name is empty", hint)
        count = sum(n.op == self.old_op_name for n in graph)
        if not count:
            return Result(graph)
        nodes = [replace(n, op=self.new_op_name) if n.op == self.old_op_name else n for n in graph]
        return Result(graph.with_nodes(nodes), count)
