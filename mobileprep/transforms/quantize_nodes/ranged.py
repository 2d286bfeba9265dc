"""The tensors of a float graph whose ranges eight-bit nodes can be given."""

from __future__ import annotations

from collections.abc import Collection

from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import Edge, edge
from mobileprep.transforms.quantize_nodes.choice import choose
from mobileprep.transforms.quantize_nodes.ops import EIGHTBIT_OPS


def ranged_tensors(graph: Graph, ignored: Collection[str] = ()) -> tuple[Edge, ...]:
    """What eight-bit forms of a graph's nodes would take and give, constants left out.

    Args:
        graph: the float graph.
        ignored: ops that stay float.

    Returns:
        Tensors in the order of the graph.
    """
    chosen = choose(graph, ignored, all_possible=False).names
    found: dict[Edge, None] = {}
    for node in graph:
        if node.name not in chosen:
            continue
        plain = EIGHTBIT_OPS[node.op].plain_inputs
        for index, ref in enumerate(node.data_inputs):
            if index not in plain and graph[ref.node].op != "Const":
                found[edge(ref)] = None
        found[node.name, 0] = None
    return tuple(found)
