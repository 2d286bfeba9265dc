"""Check whether TensorFlow can run the original's 8-bit nodes; it rejects some of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Final

from msgspec.structs import replace

import mobileprep.transforms.quantize_nodes.nodes as make
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.bypass import constant_behind
from mobileprep.graph.control_flow import conditional_nodes
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.pattern import Match, op
from mobileprep.graph.reachability import dependents
from mobileprep.graph.refs import Ref, control, edge
from mobileprep.graph.rewrite import Renames, Rule, rename_inputs, rewrite
from mobileprep.ops.nn.conv import has_channel_groups
from mobileprep.ops.quantized.arithmetic import always_align
from mobileprep.ops.shape_inference import Shapes, infer_shapes, shape_of

# Ops with results of a size that is only known at run time, and may be zero.
_SIZED_BY_DATA: Final = frozenset(
    {
        *("BooleanMask", "DynamicPartition", "ListDiff", "NonMaxSuppression", "Unique", "Where"),
        *(f"NonMaxSuppressionV{version}" for version in range(2, 6)),
        *("NonMaxSuppressionWithOverlaps", "SetDiff1D", "UniqueV2", "UniqueWithCounts"),
    }
)
_BROADCASTING: Final = frozenset({"Add", "Mul"})


def may_be_empty(graph: Graph) -> frozenset[str]:
    """Return the nodes in branches and loops, and those with data-dependent sizes."""
    sized = [n.name for n in graph if n.op in _SIZED_BY_DATA]
    return conditional_nodes(graph) | dependents(graph, sized)


class WouldRun:
    """Checks of the nodes of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @cached_property
    def _shapes(self) -> Mapping[str, Shapes]:
        return infer_shapes(self._graph)

    def reason_not(self, node: Node) -> str:
        """Return why a node's 8-bit form would fail or differ, or an empty string."""
        if node.op in _BROADCASTING and not self._aligns(*node.data_inputs):
            return "its eight-bit form may not be able to broadcast its inputs"
        if node.op == "Conv2D" and has_channel_groups(node, self._shapes):
            return "groups of channels have no 8-bit form"
        return reason_windows_differ(self._graph, node)

    def as_original(self, node: Node) -> Node:
        """Return the equivalent node of an older op with an 8-bit form, or the node itself."""
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


_LONGEST: Final = 32


def reason_windows_differ(graph: Graph, node: Node) -> str:
    """Return why a convolution's 8-bit form may place its windows differently, or an empty string.

    It has one stride for both axes. If strides skip pixels at the end of an axis, it skips as many
    at the beginning, which makes a difference from two pixels on.
    """
    if node.op != "Conv2D":
        return ""
    strides = node.attr_ints("strides")
    if len(strides) != 4 or strides[1] != strides[2] or strides[0] != 1 or strides[3] != 1:
        return "unequal strides have no 8-bit form"
    stride = strides[1]
    if node.attr_str("padding") == "VALID":
        fits = stride <= 3
    else:
        fits = _filter_size(graph, node) >= stride - 1
    return "" if fits else "the windows of its eight-bit form may lie elsewhere"


def _filter_size(graph: Graph, node: Node) -> int:
    """Return the smaller of a filter's height and width; 1 if unknown."""
    source = graph.get(node.data_inputs[1].node) if len(node.data_inputs) > 1 else None
    seen = 0
    while source is not None and source.op != "Const" and source.data_inputs and seen < _LONGEST:
        source = graph.get(source.data_inputs[0].node)
        seen += 1
    if source is None or source.op != "Const":
        return 1
    shape = source.attr_tensor("value").shape
    return min(shape[:2]) if len(shape) == 4 else 1


_MEASURED: Final = op(
    "Requantize",
    op("*", label="source"),
    "*",
    "*",
    "RequantizationRange",
    "RequantizationRange",
)
_REQUANTIZED_TWICE: Final = op(
    "Requantize",
    op(
        "QuantizeV2",
        op("Dequantize", _MEASURED, "Requantize", "Requantize"),
        "Const",
        "Const",
    ),
    "QuantizeV2",
    "QuantizeV2",
    op("Const", label="min"),
    op("Const", label="max"),
)
_WITH_ZERO: Final = frozenset({"Minimum", "Maximum"})
_DEQUANTIZED_AND_BACK: Final = op(
    "QuantizeV2", op("Dequantize", label="float"), "Min|Minimum", "Max|Maximum"
)


def merge_adjacent_requantizes(graph: Graph, protected: Collection[str], *, borrow: bool) -> Graph:
    """Replace a range measured at run time with a learned range directly after it.

    Args:
        borrow: allow several matches to share the constants of the range.

    Source: ``MergeAdjacentRequantizes`` of TensorFlow 1.15's graph transforms.
    """
    pattern = _REQUANTIZED_TWICE.borrowing("min", "max") if borrow else _REQUANTIZED_TWICE
    return rewrite(graph, Rule(pattern, _requantized_once), protected).graph


def remove_redundant_quantizations(graph: Graph, protected: Collection[str]) -> Graph:
    """Connect 8-bit ops directly if there is only a conversion to float and back between them.

    The conversions are kept if other nodes need the floats. Source:
    ``RemoveRedundantQuantizations`` of TensorFlow 1.15's graph transforms.
    """
    renames = Renames()

    def connect(match: Match) -> list[Node]:
        back, eightbit = match.node, match["float"].inputs
        if back.name in protected:
            return list(match.nodes)
        for index, source in enumerate(eightbit[:3]):
            renames.tensor(make.port(back.name, index), source)
        renames.tensor(control(back.name), control(eightbit[0].node))
        needed = match.used_outside - {back.name}
        return list(match.nodes) if needed else []

    rule = Rule(_DEQUANTIZED_AND_BACK, connect, _reason_to_keep, allow_inconsistencies=True)
    return rename_inputs(rewrite(graph, rule, protected).graph, renames)


def _requantized_once(match: Match) -> list[Node]:
    source, low, high = match["source"], match["min"], match["max"]
    inputs = (*make.ports(source.name), *match.node.inputs[3:])
    # The original spells the constants without an output number, as in the inputs.
    return [source, low, high, replace(match.node, inputs=inputs)]


def _reason_to_keep(match: Match) -> str:
    back, floats = match.node, match["float"]
    if back.attr_dtype("T") is not floats.attr_dtype("T"):
        return "the integers are of another type"
    ends = [m.node for m in match.root.inputs[1:]]
    if any(n.op in _WITH_ZERO and not make.holds_zero(n.name) for n in ends):
        return "its range is not measured"
    if back.attr_str("mode", "") != floats.attr_str("mode", ""):
        return "the integers are of another mode"
    return ""
