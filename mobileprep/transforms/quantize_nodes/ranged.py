"""Tensors of a float graph whose ranges 8-bit layers can use."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from mobileprep.graph.bypass import IDENTITIES
from mobileprep.graph.graph import Graph
from mobileprep.graph.reachability import closure
from mobileprep.graph.refs import Edge, edge
from mobileprep.transforms.quantize_nodes.eightbit_tensors import CARRYING
from mobileprep.transforms.quantize_nodes.layer_choice import choose_layers
from mobileprep.transforms.quantize_nodes.rules import Rules

_OF_ITS_INPUT: Final = CARRYING | IDENTITIES


def ranged_tensors(
    graph: Graph, ignored: Collection[str] = (), rules: Collection[str] = ()
) -> tuple[Edge, ...]:
    """Return the inputs of 8-bit layers, and the tensors that they are derived from in 8 bits.

    Args:
        graph: the float graph.
        ignored: ops that stay float.
        rules: quantization rules, see ``Rules``.

    Returns:
        Tensors in graph order, without constants.
    """
    read = Rules("quantize_nodes", tuple(rules))
    choice = choose_layers(graph, read, frozenset(ignored), trained=False)
    roots = [edge(graph[name].data_inputs[0]) for name in sorted(choice.computing)]

    def sources(tensor: Edge) -> Iterator[Edge]:
        node = graph.get(tensor[0])
        if node is not None and node.op in _OF_ITS_INPUT:
            yield from map(edge, node.data_inputs)

    tensors = closure(roots, sources)
    places = {node.name: place for place, node in enumerate(graph)}
    computed = (t for t in tensors if t[0] in places and graph[t[0]].op != "Const")
    return tuple(sorted(computed, key=lambda t: (places[t[0]], t[1])))
