"""What a graph amounts to in numbers: nodes, parameters, ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph


@dataclass(frozen=True)
class GraphStatistics:
    """A graph in numbers.

    Args:
        nodes: how many nodes it has, functions' bodies included.
        parameters: elements of all constants together.
        constants: how many Const nodes.
        bytes: the length of the serialized graph.
        ops: how many nodes of each op, functions' bodies included, by name.
    """

    nodes: int
    parameters: int
    constants: int
    bytes: int
    ops: Mapping[str, int]


def graph_statistics(graph: Graph, size: int) -> GraphStatistics:
    """Count a graph whose serialized form is ``size`` bytes long."""
    ops: Counter[str] = Counter()
    parameters = 0
    bodies = [f.nodes for f in graph.library.functions.values()]
    for nodes in (graph.nodes, *bodies):
        for node in nodes:
            ops[node.op] += 1
            if node.op == "Const":
                parameters += node.attr_tensor("value").size
    return GraphStatistics(ops.total(), parameters, ops["Const"], size, dict(sorted(ops.items())))
