"""Which float nodes are to compute in eight bits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import closure
from mobileprep.transforms.quantize_nodes.ops import EIGHTBIT_OPS, reason_to_stay_float
from mobileprep.transforms.quantize_nodes.would_run import WouldRun

# What computes enough to pay for converting its inputs.
_HEAVY: Final = frozenset({"Conv2D", "MatMul"})
_ALONE: Final = "no eight-bit op feeds it, so that converting would cost more than it saves"


@dataclass(frozen=True)
class Choice:
    """The nodes to convert by name, as the eight-bit form is made of them, and how many stay
    float by reason."""

    nodes: Mapping[str, Node]
    skipped: Counter[str]


def choose(graph: Graph, ignored: Collection[str], *, all_possible: bool) -> Choice:
    """Choose the nodes of a graph that compute in eight bits.

    Args:
        graph: the graph.
        ignored: ops that stay float.
        all_possible: choose every node that has an eight-bit form, as the original does. It wraps
            each into seven nodes and more, so that a graph of small ops grows many times over.
            Without it, only convolutions, matrix products, and what follows them are chosen.
    """
    skipped: Counter[str] = Counter()
    possible: dict[str, Node] = {}
    runs = None if all_possible else WouldRun(graph)
    for given in graph:
        if given.op in ignored:
            continue
        node = given if runs is None else runs.as_original(given)
        if node.op not in EIGHTBIT_OPS:
            continue
        reason = reason_to_stay_float(node) or ("" if runs is None else runs.reason_not(node))
        if reason:
            skipped[reason] += 1
        else:
            possible[node.name] = node
    names = set(possible) if all_possible else _fed_by_eightbit(graph, possible)
    if len(names) < len(possible):
        skipped[_ALONE] += len(possible) - len(names)
    return Choice({name: node for name, node in possible.items() if name in names}, skipped)


def _fed_by_eightbit(graph: Graph, possible: Collection[str]) -> set[str]:
    """The heavy nodes, and those that a chain of eight-bit nodes leads to."""
    starts = [n.name for n in graph if n.op in _HEAVY and n.name in possible]
    starts += [n.name for n in graph if n.op == "Dequantize" and not _is_constant(graph, n)]

    def fed(name: str) -> Iterator[str]:
        return (c.name for c in graph.consumers.get(name, ()) if c.name in possible)

    return closure(starts, fed).intersection(possible)


def _is_constant(graph: Graph, node: Node) -> bool:
    return all(graph[r.node].op == "Const" for r in node.data_inputs)
