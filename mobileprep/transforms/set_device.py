"""Set the requested device of nodes."""

from __future__ import annotations

from typing import Annotated

from msgspec.structs import replace

from mobileprep.core.declare import Option
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.transforms.base import Context, Result, Transform, transform


@transform("set_device")
class SetDevice(Transform, frozen=True):
    """Set the device of every node, or of the nodes without a device.

    Source: ``set_device`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Sets the device that nodes ask for."
    of_graph_transform_tool = True

    device: Annotated[str, Option("The device, such as `/cpu:0`. Empty for none.")] = ""
    if_default: Annotated[bool, Option("Leave nodes that ask for a device already.")] = False

    def apply(self, graph: Graph, context: Context) -> Result:
        changed = sum(self._is_moved(n) for n in graph)
        if not changed:
            return Result(graph)
        nodes = [replace(n, device=self.device) if self._is_moved(n) else n for n in graph]
        return Result(graph.with_nodes(nodes), changed)

    def _is_moved(self, node: Node) -> bool:
        return node.device != self.device and not (self.if_default and node.device)
