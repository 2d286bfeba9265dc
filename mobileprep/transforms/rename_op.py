"""Turns nodes of one op into nodes of another."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mobileprep.ir.graph import Graph
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform


@transform("rename_op")
@dataclass(frozen=True)
class RenameOp(Transform):
    """Nodes of the op become nodes of another, with the inputs and attributes that they have.

    Args:
        old_op_name: the op.
        new_op_name: what takes its place.

    Source: ``rename_op`` of TensorFlow 1.15's graph transforms.
    """

    old_op_name: str
    new_op_name: str

    def apply(self, graph: Graph, context: Context) -> Result:
        """Rename the op.

        Raises:
            TransformError: one of the names is empty.
        """
        if not self.old_op_name or not self.new_op_name:
            hint = "give old_op_name and new_op_name"
            raise refuse(self.transform_name, "an op's name is empty", hint)
        found = sum(n.op == self.old_op_name for n in graph)
        if not found:
            return Result(graph)
        nodes = [replace(n, op=self.new_op_name) if n.op == self.old_op_name else n for n in graph]
        return Result(graph.with_nodes(nodes), found)
