"""Make fake quantization read the ranges that training stored."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from mobileprep.graph.bypass import source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import without_newly_unused
from mobileprep.graph.refs import Ref
from mobileprep.graph.verify import check_inputs
from mobileprep.transforms.base import Context, Result, Transform, transform

_RANGE_INPUTS: Final = {
    "FakeQuantWithMinMaxVars": (1, 2),
    "FakeQuantWithMinMaxVarsPerChannel": (1, 2),
}
_ASSIGNING: Final = frozenset({"Assign", "AssignAdd", "AssignSub"})


@transform("remove_ema")
class RemoveEma(Transform, frozen=True):
    """Read the ranges that training averaged over batches, without updating the averages.

    In a training graph, FakeQuantWithMinMaxVars takes its range from the op that updates the moving
    average. Here, it reads the average itself, which is a variable or, once frozen, a constant.
    Nodes that only served the updates are removed.

    Source: ``remove_ema`` of the graph transforms of TensorFlow 1.4, without its assumptions about
    how the update is computed.
    """

    summary = (
        "Makes fake quantization read the ranges that training averaged, and average them no more."
    )

    def apply(self, graph: Graph, context: Context) -> Result:
        """Connect fake quantization to the stored ranges."""
        check_inputs(graph, self.transform_name)
        moved = {n.name: m for n in graph if (m := _with_read_range(graph, n)) is not n}
        if not moved:
            return Result(graph)
        after = graph.with_nodes(moved.get(n.name, n) for n in graph)
        return Result(without_newly_unused(graph, after, context.protected), len(moved))


def _with_read_range(graph: Graph, node: Node) -> Node:
    inputs = list(node.inputs)
    for index in _RANGE_INPUTS.get(node.op, ()):
        if index < len(node.data_inputs):
            inputs[index] = _averaged(graph, inputs[index])
    return node if tuple(inputs) == node.inputs else replace(node, inputs=tuple(inputs))


def _averaged(graph: Graph, ref: Ref) -> Ref:
    """Return the target of the assignment behind a reference, or the reference itself."""
    source = source_behind(graph, ref)
    node = graph[source.node]
    seen: set[str] = set()
    while node.op in _ASSIGNING and node.data_inputs and node.name not in seen:
        seen.add(node.name)
        source = node.data_inputs[0]
        node = graph[source.node]
    return source if seen else ref
