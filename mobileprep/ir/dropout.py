"""Dropout as graphs have it: a tensor scaled up, and a random mask laid on it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from mobileprep.ir import attrs as attr
from mobileprep.ir.dropout_mask import COMPARISONS, KeepRate, is_one_minus, kept_with
from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import constant_behind, node_behind
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import DIVISIONS, ENTERS, SWITCHES
from mobileprep.ir.refs import Ref

DROPS: Final = "_drops"
"""Attribute set by ``with_known_masks``: whether the rate is the share dropped, not kept."""
_SELECTS: Final = frozenset({"Select", "SelectV2"})
_HANDED_ON: Final = ENTERS | SWITCHES | {"Identity", "Cast", "PlaceholderWithDefault"}


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


def with_known_masks(graph: Graph, fetches: Collection[str] = ()) -> Graph:
    """Let each unseeded draw of a dropout mask know how much the mask keeps.

    Where a mask keeps everything, the numbers do not matter, and no seed is needed. A draw that
    something else reads stays as it is.

    Args:
        graph: the graph.
        fetches: the nodes whose values the run returns.

    Returns:
        The graph, in which ``RandomUniform`` takes the rate as a second input, and has the
        attribute ``DROPS`` for what the rate means.
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
    """Whether a node draws uniform numbers and has no seed of its own."""
    seeds = (node.attr_int("seed", 0), node.attr_int("seed2", 0))
    return node.op == "RandomUniform" and not any(seeds)


def _reads_alone(graph: Graph, mask: Node, random: str, fetches: Collection[str]) -> bool:
    """Whether random numbers, and what is computed of them, go to one mask alone."""
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
    """The value of a dropout's probability with which it changes nothing.

    Args:
        graph: the graph.
        name: the node that gives the probability.

    Returns:
        1 for a probability to keep, 0 for one to drop, and None for a node that is neither.
    """
    for node in graph:
        found = masked(graph, node)
        if found is not None:
            value = 0.0 if found[1].dropped else 1.0
            for source, is_complement in _probabilities(graph, found[1].ref):
                if source == name:
                    return 1.0 - value if is_complement else value
    return None


def _probabilities(graph: Graph, ref: Ref) -> list[tuple[str, bool]]:
    """The nodes that hand a probability on, each with whether it holds one minus it."""
    found: list[tuple[str, bool]] = []
    is_complement = False
    seen: set[str] = set()
    while ref.node not in seen:
        seen.add(ref.node)
        node = graph[ref.node]
        found.append((node.name, is_complement))
        if is_one_minus(graph, node):
            is_complement = not is_complement
            ref = node.data_inputs[1]
        elif node.op in _HANDED_ON and node.data_inputs:
            ref = node.data_inputs[0]
    return found
