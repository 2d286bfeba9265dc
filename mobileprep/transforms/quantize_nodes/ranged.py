"""The tensors of a float graph whose ranges eight-bit layers can be given."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import Edge, Ref, edge
from mobileprep.rewriting.layers import LAYERS
from mobileprep.transforms.quantize_nodes.eightbit_tensors import MOVING
from mobileprep.transforms.quantize_nodes.ops import EIGHTBIT_OPS, reason_to_stay_float


def ranged_tensors(graph: Graph, ignored: Collection[str] = ()) -> tuple[Edge, ...]:
    """What the layers that have an eight-bit form take, constants left out.

    Rules are not looked at, so that another rule needs no other ranges.

    Args:
        graph: the float graph.
        ignored: ops that stay float.

    Returns:
        Tensors in the order of the layers, each followed by what its elements come from.
    """
    found: dict[Edge, None] = {}
    for node in graph:
        if node.op not in LAYERS or node.op not in EIGHTBIT_OPS or node.op in ignored:
            continue
        if node.data_inputs and not reason_to_stay_float(node):
            found |= dict.fromkeys(_upwards(graph, node.data_inputs[0]))
    return tuple(found)


def _upwards(graph: Graph, ref: Ref) -> Iterator[Edge]:
    """A tensor, and those whose elements it takes over; constants end the way."""
    seen: set[Edge] = set()
    while edge(ref) not in seen:
        node = graph.get(ref.node)
        if node is None or node.op == "Const":
            return
        seen.add(edge(ref))
        yield edge(ref)
        if node.op in MOVING and node.data_inputs:
            ref = node.data_inputs[0]
