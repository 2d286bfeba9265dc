"""Cuts out dropout: a scaling by a constant and a random mask that keeps that share.

The forms are those of ``tf.nn.dropout``: since TensorFlow 1.0 ``x / keep * floor(keep + u)``,
since 1.13 ``x * (1 / keep) * cast(u >= rate)``, and today ``select(u >= rate, x / keep, 0)``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mobileprep.freeze.follow import is_branch_input, number
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref

_RANDOM: Final = frozenset(
    {
        "RandomUniform",
        "StatelessRandomUniform",
        "StatelessRandomUniformV2",
        "StatefulUniform",
    }
)
_SUMS: Final = frozenset({"Add", "AddV2"})
_QUOTIENTS: Final = frozenset({"RealDiv", "Div"})
_SELECTS: Final = frozenset({"Select", "SelectV2"})
_TOLERANCE: Final = 1e-3
_DEEPEST: Final = 6


@dataclass(frozen=True)
class Cut:
    """A graph after its dropout was cut out, and how many layers that were."""

    graph: Graph
    count: int = 0


def remove_dropout(graph: Graph) -> Cut:
    """Replace each dropout whose keep probability is constant by an Identity of its input."""
    if not any(n.op in _RANDOM for n in graph):
        return Cut(graph)
    nodes: list[Node] = []
    count = 0
    for node in graph:
        source = _dropped(graph, node)
        # In a branch, the app says at run time whether it trains.
        if source is None or is_branch_input(graph, source):
            nodes.append(node)
        else:
            count += 1
            inputs = (source, *node.control_inputs)
            nodes.append(Node(node.name, "Identity", inputs, node.device, {"T": node.attrs["T"]}))
    return Cut(graph.with_nodes(nodes), count)


def _dropped(graph: Graph, node: Node) -> Ref | None:
    """What a node drops parts of, if it is the last one of a dropout."""
    inputs = node.data_inputs
    if "T" not in node.attrs:
        return None
    if node.op in _SELECTS and len(inputs) == 3 and number(graph, inputs[2]) == 0:
        return _unscaled(graph, inputs[1], _kept_by_comparison(graph, inputs[0]))
    if node.op != "Mul" or len(inputs) != 2:
        return None
    for scaled, mask in (inputs, inputs[::-1]):
        found = _unscaled(graph, scaled, _kept_by_mask(graph, mask))
        if found is not None:
            return found
    return None


def _unscaled(graph: Graph, ref: Ref, keep: float | None) -> Ref | None:
    """The x of ``x / keep`` or ``x * (1 / keep)``."""
    node = graph.get(ref.node)
    if keep is None or node is None or len(node.data_inputs) != 2:
        return None
    first, second = node.data_inputs
    if node.op in _QUOTIENTS:
        divisor = number(graph, second)
        return first if divisor is not None and abs(divisor - keep) < _TOLERANCE else None
    if node.op != "Mul":
        return None
    for x, factor in ((first, second), (second, first)):
        scale = number(graph, factor)
        if scale is not None and abs(scale * keep - 1) < _TOLERANCE:
            return x
    return None


def _kept_by_mask(graph: Graph, ref: Ref) -> float | None:
    """The share of ones in a random mask of zeros and ones, or None for anything else."""
    node = graph.get(ref.node)
    if node is None or not node.data_inputs:
        return None
    if node.op == "Cast":
        return _kept_by_comparison(graph, node.inputs[0])
    if node.op != "Floor":
        return None
    total = graph.get(node.inputs[0].node)
    if total is None or total.op not in _SUMS or len(total.data_inputs) != 2:
        return None
    for keep, draw in (total.data_inputs, total.data_inputs[::-1]):
        share = number(graph, keep)
        if share is not None and _is_uniform(graph, draw):
            return share if 0 < share <= 1 else None
    return None


def _kept_by_comparison(graph: Graph, ref: Ref) -> float | None:
    node = graph.get(ref.node)
    if node is None or node.op != "GreaterEqual" or len(node.data_inputs) != 2:
        return None
    rate = number(graph, node.inputs[1])
    if rate is None or not 0 <= rate < 1 or not _is_uniform(graph, node.inputs[0]):
        return None
    return 1 - rate


def _is_uniform(graph: Graph, ref: Ref) -> bool:
    """Whether a tensor is drawn evenly between 0 and 1, spelt as ``u * (1 - 0) + 0`` or not."""
    for _ in range(_DEEPEST):
        node = graph.get(ref.node)
        if node is None:
            return False
        if node.op in _RANDOM:
            return True
        neutral = 1.0 if node.op == "Mul" else 0.0
        if node.op != "Mul" and node.op not in _SUMS:
            return False
        others = [
            a for a, b in (node.inputs[:2], node.inputs[1::-1]) if number(graph, b) == neutral
        ]
        if len(node.data_inputs) != 2 or not others:
            return False
        ref = others[0]
    return False
