"""Removes nodes of given ops, and gives what they fed their first input instead."""

from __future__ import annotations

from typing import Annotated, Final

from mobileprep.frozen import dataclass
from mobileprep.ir.bypass import Bypass
from mobileprep.ir.graph import Graph
from mobileprep.ir.idle_controls import without_idle_controls
from mobileprep.ir.order import execution_order
from mobileprep.options.declare import Option
from mobileprep.tf115.node_removal import remove_in_rounds
from mobileprep.transforms.base import Context, Result, Transform, refuse, transform

_NAME: Final = "remove_nodes"


@transform(_NAME)
@dataclass(frozen=True)
class RemoveNodes(Transform):
    """Nodes of the ops go, unless they are fed or fetched, or branches and loops hang on them.

    The original also removes nodes that carry the control flow, so that the nodes of both
    branches run. A recipe also keeps nodes that wait for others by control inputs, which the
    original forgets, and takes away in one go what hangs on one node, where the original stops
    at the first that is fed or fetched.

    Source: ``remove_nodes`` of TensorFlow 1.15's graph transforms.
    """

    summary = (
        "Removes nodes of the given ops that have one input, and connects what they fed to that "
        "input. Inputs and outputs of the graph stay."
    )
    of_graph_transform_tool = True

    op: Annotated[tuple[str, ...], Option("The op to remove. Repeated for several.", min_items=1)]
    max_inputs: Annotated[
        int,
        Option("Remove nodes of up to this many inputs; the first one takes the node's place."),
    ] = 1

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove the nodes.

        Raises:
            TransformError: no op is named.
        """
        if not self.op:
            raise refuse(_NAME, "no op is named", "name it: remove_nodes(op=Identity)")
        protected = context.protected
        if context.tf115:
            done = remove_in_rounds(graph, self.op, self.max_inputs, protected)
            return Result.of(done, graph, context)
        ready = without_idle_controls(graph, protected)
        bypass = Bypass(ready, protected)
        for node in execution_order(ready):
            tensors = node.data_inputs
            if node.op in self.op and 1 <= len(tensors) <= self.max_inputs:
                bypass.take_out(node, tensors[0])
        return Result.of(bypass.result(), graph, context)
