"""Dropout in graphs: a scaled tensor and a random mask."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.graph import attrs as attr
from mobileprep.graph.bypass import constant_behind, node_behind, source_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import DIVISIONS, ENTERS, SUMS, SWITCHES
from mobileprep.graph.refs import Ref

DROPS: Final = "_drops"
"""Attribute set by ``with_known_masks``: whether the rate is the dropped or the kept share."""
_SELECTS: Final = frozenset({"Select", "SelectV2"})
_HANDED_ON: Final = ENTERS | SWITCHES | {"Identity", "Cast", "PlaceholderWithDefault"}


def masked(graph: Graph, node: Node) -> tuple[Ref, KeepRate] | None:
    """Return the tensor that a random mask is applied to, and the share that the mask keeps."""
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
    """Return the tensor before scaling if the scale is one divided by the rate, otherwise None."""
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


def with_known_masks(graph: Graph, fetches: Collection[str] = ()) -> Graph:
    """Add the keep rate to each unseeded random op of a dropout mask.

    If a mask keeps all elements, the random numbers do not matter, and no seed is needed. Random
    ops with other consumers are not changed.

    Returns:
        The graph, in which ``RandomUniform`` has the rate as its second input, and the attribute
        ``DROPS`` for the meaning of the rate.
    """
    rates: dict[str, KeepRate] = {}
    for node in graph:
        if node.op == "Floor" or node.op in COMPARISONS:
            rate = kept_with(graph, Ref(node.name), is_number=node.op == "Floor")
            if rate is not None and _reads_alone(graph, node, rate.random, fetches):
                rates[rate.random] = rate
    nodes = []
    for node in graph:
        rate = rates.get(node.name)
        if rate is not None and is_unseeded(node):
            inputs = (*node.data_inputs, rate.ref, *node.control_inputs)
            attrs = {**node.attrs, DROPS: attr.boolean(rate.dropped)}
            node = replace(node, inputs=inputs, attrs=attrs)
        nodes.append(node)
    return graph.with_nodes(nodes)


def is_unseeded(node: Node) -> bool:
    """Return whether a node generates uniform random numbers without its own seed."""
    seeds = (node.attr_int("seed", 0), node.attr_int("seed2", 0))
    return node.op == "RandomUniform" and not any(seeds)


def _reads_alone(graph: Graph, mask: Node, random: str, fetches: Collection[str]) -> bool:
    """Return whether random numbers and values computed from them are only used by one mask."""
    name = random
    while name != mask.name:
        consumers = graph.consumers.get(name, ())
        if len(consumers) != 1 or name in fetches:
            return False
        name = consumers[0].name
    return True


def _is_zero(graph: Graph, ref: Ref) -> bool:
    if node_behind(graph, ref).op == "ZerosLike":
        return True
    value = constant_behind(graph, ref)
    return value is not None and value.size == 1 and not value.array().any()


def neutral_probability(graph: Graph, name: str) -> float | None:
    """Return the value of a dropout's probability that disables the dropout.

    Returns:
        1 for a probability to keep, 0 for a probability to drop, and None for other nodes.
    """
    for node in graph:
        dropout = masked(graph, node)
        if dropout is not None:
            rate = dropout[1]
            value = 0.0 if rate.dropped else 1.0
            for source, is_complement in _probabilities(graph, rate.ref):
                if source == name:
                    return 1.0 - value if is_complement else value
    return None


def _probabilities(graph: Graph, ref: Ref) -> list[tuple[str, bool]]:
    """Return the nodes that pass on a probability, and whether each contains one minus it."""
    sources: list[tuple[str, bool]] = []
    is_complement = False
    seen: set[str] = set()
    while ref.node not in seen:
        seen.add(ref.node)
        node = graph[ref.node]
        sources.append((node.name, is_complement))
        if is_one_minus(graph, node):
            is_complement = not is_complement
            ref = node.data_inputs[1]
        elif node.op in _HANDED_ON and node.data_inputs:
            ref = node.data_inputs[0]
    return sources


_UNIFORM: Final = frozenset({"RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2"})
# The mask is true for kept elements: random numbers are compared with the dropped or kept share.
_ABOVE_DROPPED: Final = frozenset({"GreaterEqual", "Greater"})
_BELOW_KEPT: Final = frozenset({"Less", "LessEqual"})
COMPARISONS: Final = _ABOVE_DROPPED | _BELOW_KEPT
"""Ops of boolean masks."""
_ARITHMETIC: Final[Mapping[str, Callable[[float, float], float]]] = {
    **dict.fromkeys(SUMS, operator.add),
    "Sub": operator.sub,
    "Mul": operator.mul,
}
_DEPTH: Final = 4
# Rates and scales are rounded to single or half precision.
_TOLERANCE: Final = 1e-3


class KeepRate(Struct, frozen=True):
    """The share of elements that a mask keeps.

    Args:
        graph: the graph.
        ref: tensor with the kept or dropped share.
        dropped: whether ``ref`` is the dropped share.
        random: name of the node that generates the random numbers.
    """

    graph: Graph
    ref: Ref
    dropped: bool
    random: str

    def is_rate(self, ref: Ref) -> bool:
        """Return whether a tensor is the kept share."""
        if not self.dropped and source_behind(self.graph, ref) == self._source:
            return True
        node = node_behind(self.graph, ref)
        one_minus = self.dropped and is_one_minus(self.graph, node)
        if one_minus and source_behind(self.graph, node.data_inputs[1]) == self._source:
            return True
        return self._is(_number(self.graph, ref))

    def is_reciprocal(self, ref: Ref) -> bool:
        """Return whether a tensor is one divided by the kept share."""
        node = node_behind(self.graph, ref)
        if node.op in DIVISIONS and len(node.data_inputs) == 2:
            one, rate = node.data_inputs
            return _number(self.graph, one) == 1 and self.is_rate(rate)
        number = _number(self.graph, ref)
        return self._is(1 / number if number else None)

    @property
    def constant(self) -> float | None:
        """The kept share if it follows from constants, otherwise None."""
        rate = _number(self.graph, self.ref)
        return None if rate is None else 1 - rate if self.dropped else rate

    @property
    def _source(self) -> Ref:
        return source_behind(self.graph, self.ref)

    def _is(self, number: float | None) -> bool:
        constant = self.constant
        if constant is None or number is None:
            return False
        return math.isclose(constant, number, rel_tol=_TOLERANCE)


def kept_with(graph: Graph, mask: Ref, *, is_number: bool) -> KeepRate | None:
    """Return the keep rate of a random mask, or None for other tensors.

    Args:
        is_number: whether the mask is 0 or 1 instead of false or true.
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
    """Return whether a node subtracts a tensor from one."""
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
    """Return the node that generates uniform numbers from 0 to 1; empty for other tensors."""
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
    """Return the value of a tensor if it is a single number that follows from constants."""
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
