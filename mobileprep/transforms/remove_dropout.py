"""Removes dropout, which is for training alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.order import tool_order
from mobileprep.ir.refs import Ref
from mobileprep.transforms._bypass import Bypass
from mobileprep.transforms._dropout_mask import KeepRate, kept_with
from mobileprep.transforms._identities import constant_behind, node_behind
from mobileprep.transforms._rewriting import fed_and_fetched
from mobileprep.transforms.base import Context, Result, Transform, transform

_OTHER_SCALE: Final = "what is kept is not scaled up by what is dropped"
_SELECTS: Final = frozenset({"Select", "SelectV2"})
_DIVISIONS: Final = frozenset({"Div", "RealDiv"})


@transform("remove_dropout")
@dataclass(frozen=True)
class RemoveDropout(Transform):
    """A tensor goes through as it is where dropout set some elements to zero and scaled the rest.

    Known are the forms that ``tf.nn.dropout`` has had: the scaled tensor times
    ``Floor(rate + uniform)`` or times ``Cast(uniform >= rate)``, and ``Select`` between it and
    zero. The scale must be one divided by the share that is kept, be they constants or the same
    placeholder. What only served the dropout is removed.
    """

    def apply(self, graph: Graph, context: Context) -> Result:
        """Remove the dropouts."""
        bypass = Bypass(graph, fed_and_fetched(context))
        for node in tool_order(graph):
            found = _masked(graph, node)
            if found is None:
                continue
            scaled, rate = found
            source = _unscaled(graph, scaled, rate)
            if source is None:
                bypass.leave(_OTHER_SCALE)
            else:
                bypass.take_out(node, source)
        return bypass.result(with_unused=False)


def _masked(graph: Graph, node: Node) -> tuple[Ref, KeepRate] | None:
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


def _unscaled(graph: Graph, ref: Ref, rate: KeepRate) -> Ref | None:
    """The tensor before it was scaled, where the scale is one divided by the rate."""
    node = node_behind(graph, ref)
    tensors = node.data_inputs
    if len(tensors) != 2:
        return None
    if node.op in _DIVISIONS:
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
