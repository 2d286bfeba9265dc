"""Dropout as graphs have it: a tensor scaled up, and a random mask laid on it."""

from __future__ import annotations

from typing import Final

from mobileprep.ir.dropout_mask import KeepRate, kept_with
from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import constant_behind, node_behind
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import DIVISIONS
from mobileprep.ir.refs import Ref

_SELECTS: Final = frozenset({"Select", "SelectV2"})


def masked(graph: Graph, node: Node) -> tuple[Ref, KeepRate] | None:
    """The tensor that a random mask is laid on, and how much of it the mask keeps."""
    tensors = node.data_inputs
    if node.op == "Mul" and len(tensors) == 2:
        for tensor, mask in (tensors, tensors[::-1]):
            rate = kept_with(graph, mask, is_number=True)
            if rate is not None:
                return tensor, rate
    if node.op in _SELECTS and len(tensors) == 3 and _is_zero(graph, tensors[2]):
        rate = kept_with(graph, tensors[0], is_number=False)
        return None if rate is None else (tensors[1], rate)
    return None


def unscaled(graph: Graph, ref: Ref, rate: KeepRate) -> Ref | None:
    """The tensor before it was scaled, where the scale is one divided by the rate."""
    node = node_behind(graph, ref)
    tensors = node.data_inputs
    if len(tensors) != 2:
        return None
    if node.op in DIVISIONS:
        return tensors[0] if rate.is_rate(tensors[1]) else None
    if node.op != "Mul":
        return None
    for tensor, factor in (tensors, tensors[::-1]):
        if rate.is_reciprocal(factor):
            return tensor
    return None


def _is_zero(graph: Graph, ref: Ref) -> bool:
    if node_behind(graph, ref).op == "ZerosLike":
        return True
    value = constant_behind(graph, ref)
    return value is not None and value.size == 1 and not value.array().any()
