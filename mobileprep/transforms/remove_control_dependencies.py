"""Takes control inputs off nodes."""

from __future__ import annotations

from msgspec.structs import replace

from mobileprep.graph.control_flow import conditional_nodes
from mobileprep.graph.graph import Graph
from mobileprep.transforms.base import Context, Result, Transform, transform

_TIED = "its only tie to a branch or a loop"


@transform("remove_control_dependencies")
class RemoveControlDependencies(Transform, frozen=True):
    """No node waits for another one any more without taking a tensor from it.

    A node that takes no tensors keeps those control inputs that tie it to a branch or a loop:
    without them a constant of a branch not taken would reach the Merge, and one of a loop's body
    would be outside of its frame. The original takes these off too.

    Source: ``remove_control_dependencies`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Takes control inputs off nodes; those that tie a node to a branch or a loop stay."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove what only orders execution."""
        conditional = conditional_nodes(graph)
        nodes = []
        changed = tied = 0
        for node in graph:
            tensors = node.data_inputs
            if len(tensors) == len(node.inputs):
                nodes.append(node)
                continue
            kept = tensors or tuple(r for r in node.inputs if r.node in conditional)
            tied += kept is not tensors and bool(kept)
            changed += len(kept) < len(node.inputs)
            nodes.append(replace(node, inputs=kept))
        skipped = {_TIED: tied} if tied else {}
        return Result(graph.with_nodes(nodes) if changed else graph, changed, skipped)
