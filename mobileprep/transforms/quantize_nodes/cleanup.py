"""Takes out conversions that follow one another in an eight-bit graph."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import mobileprep.transforms.quantize_nodes.nodes as make
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.pattern import Match, op
from mobileprep.ir.refs import control
from mobileprep.ir.rewrite import Renames, Rule, rename_inputs, rewrite

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
    """Let a learnt range take the place of one measured at run time just before it.

    Args:
        graph: the graph.
        protected: names of nodes that must survive.
        borrow: let several places share the constants of the range.

    Source: ``MergeAdjacentRequantizes`` of TensorFlow 1.15's graph transforms.
    """
    pattern = _REQUANTIZED_TWICE.borrowing("min", "max") if borrow else _REQUANTIZED_TWICE
    return rewrite(graph, Rule(pattern, _requantized_once), protected).graph


def remove_redundant_quantizations(graph: Graph, protected: Collection[str]) -> Graph:
    """Connect eight-bit ops directly where a float conversion there and back lies between them.

    The conversions stay where something else needs the floats. Source:
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
    # The original spells the constants without an output number, as they are given here.
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
