"""Replace ConcatV2 with Concat."""

from __future__ import annotations

from collections import Counter
from typing import Final

from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.transforms.base import Context, Result, Transform, transform

_WIDE_AXIS: Final = "the axis is int64, which Concat does not take"


@transform("backport_concatv2")
class BackportConcatV2(Transform, frozen=True):
    """Replace ConcatV2, whose axis is the last input, with Concat, whose axis is the first.

    Source: ``backport_concatv2`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Replaces ConcatV2 by Concat, for programs that are older than ConcatV2."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Replace every ConcatV2 whose axis is int32."""
        skipped: Counter[str] = Counter()
        nodes: list[Node] = []
        matched = 0
        for node in graph:
            if node.op != "ConcatV2":
                nodes.append(node)
            elif reason := _reason_to_stay(node):
                skipped[reason] += 1
                nodes.append(node)
            else:
                matched += 1
                nodes.append(_concat(node))
        return Result(graph.with_nodes(nodes) if matched else graph, matched, skipped)


def _reason_to_stay(node: Node) -> str:
    if node.attr_dtype("Tidx", DType.INT32) is not DType.INT32:
        return _WIDE_AXIS
    return "" if node.data_inputs else "it takes no tensors"


def _concat(node: Node) -> Node:
    *values, axis = node.data_inputs
    # Like the original, use the last input as the axis even if it is a control input.
    inputs = (axis, *values, *node.control_inputs)
    return replace(node, op="Concat", inputs=inputs).without_attrs("Tidx")
