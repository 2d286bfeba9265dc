"""Where the windows of eight-bit convolutions lie."""

from __future__ import annotations

from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node

_LONGEST: Final = 32


def reason_windows_differ(graph: Graph, node: Node) -> str:
    """Why a convolution's eight-bit form may lay its windows elsewhere; empty where it does not.

    It has one stride for both axes. Where strides leave pixels out at the end of an axis, it
    leaves out as many at its beginning, which begins to tell at two pixels and more.
    """
    if node.op != "Conv2D":
        return ""
    strides = node.attr_ints("strides")
    if len(strides) != 4 or strides[1] != strides[2] or strides[0] != 1 or strides[3] != 1:
        return "there is no eight-bit form with unequal strides"
    stride = strides[1]
    if node.attr_str("padding") == "VALID":
        fits = stride <= 3
    else:
        fits = _filter_size(graph, node) >= stride - 1
    return "" if fits else "the windows of its eight-bit form may lie elsewhere"


def _filter_size(graph: Graph, node: Node) -> int:
    """The lesser of a filter's height and width; 1 where they are not known."""
    source = graph.get(node.data_inputs[1].node) if len(node.data_inputs) > 1 else None
    seen = 0
    while source is not None and source.op != "Const" and source.data_inputs and seen < _LONGEST:
        source = graph.get(source.data_inputs[0].node)
        seen += 1
    if source is None or source.op != "Const":
        return 1
    shape = source.attr_tensor("value").shape
    return min(shape[:2]) if len(shape) == 4 else 1
