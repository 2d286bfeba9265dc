"""Which nodes TensorFlow can run in the original's eight-bit form; some it makes, and refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.control_flow import conditional_nodes
from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import constant_behind
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import dependents
from mobileprep.ir.refs import Ref, edge
from mobileprep.ops.nn.conv import has_channel_groups
from mobileprep.ops.quantized.arithmetic import always_align
from mobileprep.ops.shape_inference import Shapes, infer_shapes, shape_of
from mobileprep.transforms.quantize_nodes.windows import reason_windows_differ

# The size of their results is found when they run, and may be none.
_SIZED_BY_DATA: Final = frozenset(
    {
        *("BooleanMask", "DynamicPartition", "ListDiff", "NonMaxSuppression", "Unique", "Where"),
        *(f"NonMaxSuppressionV{version}" for version in range(2, 6)),
        *("NonMaxSuppressionWithOverlaps", "SetDiff1D", "UniqueV2", "UniqueWithCounts"),
    }
)
_BROADCASTING: Final = frozenset({"Add", "Mul"})


def may_be_empty(graph: Graph) -> frozenset[str]:
    """The nodes of branches and loops, and those behind a size that data decide."""
    sized = [n.name for n in graph if n.op in _SIZED_BY_DATA]
    return conditional_nodes(graph) | dependents(graph, sized)


class WouldRun:
    """Looks at the nodes of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def _shapes(self) -> Mapping[str, Shapes]:
        return infer_shapes(self._graph)

    def reason_not(self, node: Node) -> str:
        """Why the eight-bit form of a node would not run, or give something else; else empty."""
        if node.op in _BROADCASTING and not self._aligns(*node.data_inputs):
            return "its eight-bit form may not be able to broadcast its inputs"
        if node.op == "Conv2D" and has_channel_groups(node, self._shapes):
            return "there is no eight-bit form with groups of channels"
        return reason_windows_differ(self._graph, node)

    def as_original(self, node: Node) -> Node:
        """A node as the op of older releases that does the same and has an eight-bit form."""
        if node.op == "AddV2":
            return replace(node, op="Add")
        if node.op != "ConcatV2" or len(node.data_inputs) < 3:
            return node
        *parts, axis = node.data_inputs
        along = None if axis.index else constant_behind(self._graph, axis)
        if along is None or along.size != 1 or int(along.array().reshape(-1)[0]) < 0:
            return node
        inputs = (axis, *parts, *node.control_inputs)
        return replace(node, op="Concat", inputs=inputs).without_attrs("Tidx")

    def _aligns(self, x: Ref, y: Ref) -> bool:
        return edge(x) == edge(y) or always_align(self._shape(x), self._shape(y))

    def _shape(self, ref: Ref) -> TensorShape:
        return shape_of(self._shapes, ref)
