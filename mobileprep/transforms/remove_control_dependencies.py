"""Remove control inputs from nodes."""

from __future__ import annotations

from msgspec.structs import replace

from mobileprep.graph.control_flow import conditional_nodes
from mobileprep.graph.graph import Graph
from mobileprep.transforms.base import Context, Result, Transform, transform

_TIED = "its only tie to a branch or a loop"


@transform("remove_control_dependencies")
class RemoveControlDependencies(Transform, frozen=True):
    """Remove control inputs, so that nodes only depend on nodes whose tensors they take.

    A node that takes no tensors keeps the control inputs that tie it to a branch or a loop. Without
    them, a constant of a branch that does not run would reach the Merge, and a constant of a loop's
    body would be outside of its frame. The original removes these too.

    Source: ``remove_control_dependencies`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Takes control inputs off nodes; those that tie a node to a branch or a loop stay."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove the control inputs that only order execution."""
        conditional = conditional_nodes(graph)
        nodes = []
        changed = tied = 0
        for node in graph:
            tensors = node.data_inputs
            if len(tensors) == len(node.inputs):
                nodes.append(node)
                continue
            inputs = tensors or tuple(r for r in node.inputs if r.node in conditional)
            tied += inputs is not tensors and bool(inputs)
            changed += len(inputs) < len(node.inputs)
            nodes.append(replace(node, inputs=inputs))
        skipped = {_TIED: tied} if tied else {}
        return Result(graph.with_nodes(nodes) if changed else graph, changed, skipped)
