"""Remove the requested device from every node."""

from __future__ import annotations

from msgspec.structs import replace

from mobileprep.graph.graph import Graph
from mobileprep.transforms.base import Context, Result, Transform, transform


@transform("remove_device")
class RemoveDevice(Transform, frozen=True):
    """Clear the device of every node, except in function bodies.

    Source: ``remove_device`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Takes the requested device off every node."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        placed = sum(bool(n.device) for n in graph)
        if not placed:
            return Result(graph)
        nodes = [replace(n, device="") if n.device else n for n in graph]
        return Result(graph.with_nodes(nodes), placed)
