"""Ranges learnt in training: FakeQuantWithMinMaxVars becomes eight-bit conversions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Final

import mobileprep.transforms.quantize_nodes.nodes as make
from mobileprep.ir.graph import Graph
from mobileprep.ir.names import FreshNames
from mobileprep.ir.node import Node
from mobileprep.ir.pattern import Match, NodeMatch, OpTypePattern, op
from mobileprep.ir.refs import Ref
from mobileprep.ir.rewrite import Rewritten, Rule, rewrite
from mobileprep.transforms.quantize_nodes.nodes import QINT32

_FAKE_QUANT: Final = "FakeQuantWithMinMaxVars"
_LONGEST_HOIST: Final = 3

# Rounding to steps of a range may be done before these as well as after them.
_MOVABLE: Final = frozenset(
    {
        *("Identity", "StopGradient", "PreventGradient", "CheckNumerics", "Snapshot"),
        *("Relu", "Relu6", "MaxPool", "AvgPool", "Squeeze"),
        *("BatchToSpace", "SpaceToBatch", "DepthToSpace", "SpaceToDepth"),
    }
)


def hoist(graph: Graph, protected: Collection[str], *, borrow: bool) -> Graph:
    """Move fake quantizations up chains of up to three one-input ops, to where results are wide.

    Args:
        graph: the graph.
        protected: names of nodes that must survive.
        borrow: let several fake quantizations share constants and inputs, where the original
            moves but one of them.

    Source: ``HoistFakeQuants`` of TensorFlow 1.15's graph transforms.
    """
    for length in range(_LONGEST_HOIST, 0, -1):
        pattern = _chain(length)
        if borrow:
            pattern = pattern.borrowing("min", "max", "source")
        hoisted = partial(_hoisted, FreshNames(graph.by_name))
        graph = rewrite(graph, Rule(pattern, hoisted, _reason_not_to_hoist), protected).graph
    return graph


def convert(graph: Graph, protected: Collection[str], *, borrow: bool) -> Rewritten:
    """Turn fake quantizations into quantization, requantization and dequantization.

    Args as for ``hoist``. Source: ``ConvertFakeQuantsToRequantize`` of TensorFlow 1.15's graph
    transforms.
    """
    pattern = _fake_quant(op("*", label="source"))
    if borrow:
        pattern = pattern.borrowing("min", "max", "source")
    converted = partial(_converted, FreshNames(graph.by_name))
    return rewrite(graph, Rule(pattern, converted, _reason_not_to_convert), protected)


def _fake_quant(source: OpTypePattern) -> OpTypePattern:
    return op(_FAKE_QUANT, source, op("Const", label="min"), op("Const", label="max"))


def _chain(length: int) -> OpTypePattern:
    pattern = op("*", label="source")
    for _ in range(length):
        pattern = op("*", pattern)
    return _fake_quant(pattern)


def _links(match: Match) -> list[Node]:
    """The one-input nodes of a chain, the last one first."""
    links: list[Node] = []
    below: NodeMatch = match.root.inputs[0]
    while below.inputs:
        links.append(below.node)
        below = below.inputs[0]
    return links


def _reason_not_to_hoist(match: Match) -> str:
    links = _links(match)
    if any(n.op not in _MOVABLE for n in links):
        return "an op before the fake quantization changes its range"
    # What else they feed would be rounded and cut to a range that is not its own.
    if not match.used_outside.isdisjoint(n.name for n in links):
        return "a node before the fake quantization is used elsewhere"
    return ""


def _hoisted(names: FreshNames, match: Match) -> list[Node]:
    fake_quant = match.node
    links = _links(match)
    name = names.name(f"{fake_quant.name}_hoisted")
    earlier = replace(fake_quant, name=name, inputs=(links[-1].inputs[0], *fake_quant.inputs[1:]))
    links[-1] = replace(links[-1], inputs=(Ref(name), *links[-1].inputs[1:]))
    links[0] = replace(links[0], name=fake_quant.name)
    return [earlier, match["min"], match["max"], *links, match["source"]]


def _reason_not_to_convert(match: Match) -> str:
    low, high = (match[label].attr_tensor("value") for label in ("min", "max"))
    if low.size != 1 or high.size != 1:
        return "the range of the fake quantization is no pair of numbers"
    least, greatest = float(low.array().reshape(-1)[0]), float(high.array().reshape(-1)[0])
    if not (least <= 0 and least < greatest):
        # Requantize fails on such a range when the graph runs.
        return "the range of the fake quantization is empty or above zero"
    return ""


def _converted(names: FreshNames, match: Match) -> list[Node]:
    fake_quant, low, high = match.node, match["min"], match["max"]
    prefix = f"{fake_quant.name}_eightbit"
    name = names.name(f"{prefix}/quantize")
    wide = make.quantize(name, fake_quant.inputs[0], low.name, high.name, QINT32)
    name = names.name(f"{prefix}/requantize")
    narrow = make.requantize(name, wide.name, Ref(low.name), Ref(high.name))
    result = make.dequantize(fake_quant.name, make.ports(narrow.name))
    wide = replace(wide, inputs=wide.inputs + fake_quant.control_inputs)
    return [match["source"], low, high, wide, narrow, result]
