"""Where the windows of eight-bit convolutions lie."""

from __future__ import annotations

from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import source_behind
from mobileprep.ir.node import Node


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
        size = _filter_size(graph, node)
        fits = size is not None and min(size) >= stride - 1
    return "" if fits else "the windows of its eight-bit form may lie elsewhere"


def _filter_size(graph: Graph, node: Node) -> tuple[int, int] | None:
    if len(node.data_inputs) < 2:
        return None
    source = graph.get(source_behind(graph, node.data_inputs[1]).node)
    while source is not None and source.op != "Const" and source.data_inputs:
        source = graph.get(source.data_inputs[0].node)
    if source is None or source.op != "Const":
        return None
    shape = source.attr_tensor("value").shape
    return (shape[0], shape[1]) if len(shape) == 4 else None
