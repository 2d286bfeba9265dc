"""The masks of dropout, and how much they keep."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Final

from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import constant_behind, node_behind, source_behind
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import DIVISIONS, SUMS
from mobileprep.ir.refs import Ref

_UNIFORM: Final = frozenset({"RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2"})
# True where an element is kept: beside a random number stands the share that is dropped, or kept.
_ABOVE_DROPPED: Final = frozenset({"GreaterEqual", "Greater"})
_BELOW_KEPT: Final = frozenset({"Less", "LessEqual"})
COMPARISONS: Final = _ABOVE_DROPPED | _BELOW_KEPT
"""Ops of masks that are false or true."""
_ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    **dict.fromkeys(SUMS, operator.add),
    "Sub": operator.sub,
    "Mul": operator.mul,
}
_DEPTH: Final = 4
# Rates and scales are rounded to single, or even half, precision.
_TOLERANCE: Final = 1e-3


@dataclass(frozen=True)
class KeepRate:
    """The share of elements that a mask keeps.

    Args:
        graph: the graph.
        ref: the tensor that holds the share kept, or dropped.
        dropped: whether it is the share dropped.
        random: the name of the node that draws the random numbers.
    """

    graph: Graph
    ref: Ref
    dropped: bool
    random: str

    def is_rate(self, ref: Ref) -> bool:
        """Whether a tensor is the share that is kept."""
        if not self.dropped and source_behind(self.graph, ref) == self._source:
            return True
        node = node_behind(self.graph, ref)
        one_minus = self.dropped and is_one_minus(self.graph, node)
        if one_minus and source_behind(self.graph, node.data_inputs[1]) == self._source:
            return True
        return self._is(_number(self.graph, ref))

    def is_reciprocal(self, ref: Ref) -> bool:
        """Whether a tensor is one divided by the share that is kept."""
        node = node_behind(self.graph, ref)
        if node.op in DIVISIONS and len(node.data_inputs) == 2:
            one, rate = node.data_inputs
            return _number(self.graph, one) == 1 and self.is_rate(rate)
        number = _number(self.graph, ref)
        return self._is(1 / number if number else None)

    @property
    def constant(self) -> float | None:
        """The share that is kept, where it follows from constants."""
        rate = _number(self.graph, self.ref)
        return None if rate is None else 1 - rate if self.dropped else rate

    @property
    def _source(self) -> Ref:
        return source_behind(self.graph, self.ref)

    def _is(self, number: float | None) -> bool:
        kept = self.constant
        if kept is None or number is None:
            return False
        return math.isclose(kept, number, rel_tol=_TOLERANCE)


def kept_with(graph: Graph, mask: Ref, *, is_number: bool) -> KeepRate | None:
    """How much a random mask keeps, or None for any other tensor.

    Args:
        graph: the graph.
        mask: the tensor.
        is_number: whether it is to be 0 or 1, rather than false or true.
    """
    node = node_behind(graph, mask)
    if is_number and node.op == "Floor" and len(node.data_inputs) == 1:
        return _kept_by_floor(graph, node_behind(graph, node.data_inputs[0]))
    if is_number:
        if node.op != "Cast" or len(node.data_inputs) != 1:
            return None
        node = node_behind(graph, node.data_inputs[0])
    if node.op not in _ABOVE_DROPPED | _BELOW_KEPT or len(node.data_inputs) != 2:
        return None
    random, bound = node.data_inputs
    drawn = _uniform(graph, random)
    return KeepRate(graph, bound, node.op in _ABOVE_DROPPED, drawn) if drawn else None


def is_one_minus(graph: Graph, node: Node) -> bool:
    """Whether a node subtracts a tensor from one."""
    return (
        node.op == "Sub" and len(node.data_inputs) == 2 and _number(graph, node.data_inputs[0]) == 1
    )


def _kept_by_floor(graph: Graph, total: Node) -> KeepRate | None:
    if total.op not in SUMS or len(total.data_inputs) != 2:
        return None
    first, second = total.data_inputs
    for rate, random in ((first, second), (second, first)):
        drawn = _uniform(graph, random)
        if drawn and not _uniform(graph, rate):
            return KeepRate(graph, rate, False, drawn)
    return None


def _uniform(graph: Graph, ref: Ref) -> str:
    """The node that draws a tensor of random numbers between 0 and 1; empty for other tensors."""
    node = node_behind(graph, ref)
    if node.op in _UNIFORM:
        return node.name
    if node.op not in SUMS or len(node.data_inputs) != 2:
        return ""
    spread, least = node.data_inputs
    scaled = node_behind(graph, spread)
    if scaled.op != "Mul" or len(scaled.data_inputs) != 2 or _number(graph, least) != 0:
        return ""
    random, width = scaled.data_inputs
    drawn = node_behind(graph, random)
    return drawn.name if drawn.op in _UNIFORM and _number(graph, width) == 1 else ""


def _number(graph: Graph, ref: Ref, depth: int = _DEPTH) -> float | None:
    """A tensor's value where it is a single number that follows from constants."""
    node = node_behind(graph, ref)
    if node.op == "Const":
        value = constant_behind(graph, ref)
        is_single = value is not None and value.size == 1 and value.dtype.is_floating
        return float(value.array().item()) if value is not None and is_single else None
    if not depth or len(node.data_inputs) != 2:
        return None
    first, second = (_number(graph, r, depth - 1) for r in node.data_inputs)
    if first is None or second is None:
        return None
    if node.op in DIVISIONS:
        return first / second if second else None
    combine = _ARITHMETIC.get(node.op)
    return None if combine is None else combine(first, second)
