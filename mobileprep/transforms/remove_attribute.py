"""Takes an attribute off nodes."""

from __future__ import annotations

from dataclasses import dataclass

from mobileprep.ir.graph import Graph
from mobileprep.ir.selection import ANY, of_op
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform


@transform("remove_attribute")
@dataclass(frozen=True)
class RemoveAttribute(Transform):
    """The attribute goes from every node of the op.

    Args:
        attribute_name: the attribute.
        op_name: the op, or ``*`` for all.

    Source: ``remove_attribute`` of TensorFlow 1.15's graph transforms.
    """

    attribute_name: str
    op_name: str = ANY

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove the attribute.

        Raises:
            TransformError: no attribute is named.
        """
        name = self.attribute_name
        if not name:
            raise refuse(self.transform_name, "no attribute is named", "give attribute_name")
        found = of_op(graph, self.op_name, name)
        if not found:
            return Result(graph)
        nodes = [n.without_attrs(name) if n.name in found else n for n in graph]
        return Result(graph.with_nodes(nodes), len(found))
