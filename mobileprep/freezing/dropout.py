"""Cuts out dropout whose keep probability is constant."""

from __future__ import annotations

from mobileprep.freezing.follow import is_branch_input
from mobileprep.frozen import dataclass
from mobileprep.ir.dropout import masked, unscaled
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref


@dataclass(frozen=True)
class Cut:
    """A graph after its dropout was cut out, and how many layers that were."""

    graph: Graph
    count: int = 0


def remove_dropout(graph: Graph) -> Cut:
    """Replace each dropout whose keep probability is constant by an Identity of its input."""
    nodes: list[Node] = []
    count = 0
    for node in graph:
        source = _dropped(graph, node)
        if source is None:
            nodes.append(node)
        else:
            count += 1
            inputs = (source, *node.control_inputs)
            nodes.append(
                Node(node.name, "Identity", inputs, node.device, {"T": node.attribute("T")})
            )
    return Cut(graph.with_nodes(nodes), count) if count else Cut(graph)


def _dropped(graph: Graph, node: Node) -> Ref | None:
    """What a node drops parts of, if it is the last one of a dropout."""
    found = masked(graph, node) if "T" in node.attrs else None
    if found is None:
        return None
    scaled, rate = found
    kept = rate.constant
    source = unscaled(graph, scaled, rate)
    if source is None or kept is None or not 0 < kept <= 1:
        return None
    # In a branch, the app says at run time whether it trains.
    return None if is_branch_input(graph, source) else source
