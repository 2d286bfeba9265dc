"""What of a graph runs when tensors are fed and fetched.

Source: ``RewriteGraphForExecution`` of TensorFlow 1.15.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import PLACEHOLDERS
from mobileprep.graph.reachability import reachable
from mobileprep.graph.refs import Ref, control, parse_ref


class Execution(Struct, frozen=True):
    """The nodes that a run needs, and the feeds that cut the graph.

    Args:
        nodes: the needed nodes by name, in stored order.
        fed: the inputs of nodes that come from a feed: the tensors fed, and control
            dependencies on the placeholders among them.
        inputs: the nodes whose tensors are fed, in the order that the user gave.
        fetched: the tensors that are fetched.
    """

    nodes: Mapping[str, Node]
    fed: frozenset[Ref]
    inputs: tuple[str, ...]
    fetched: tuple[Ref, ...]


def execution(nodes: Iterable[Node], inputs: Iterable[str], outputs: Iterable[str]) -> Execution:
    """The part of a graph between tensors fed and tensors fetched."""
    by_name = {node.name: node for node in nodes}
    tensors = [parse_ref(name) for name in inputs]
    placeholders = (r.node for r in tensors if by_name[r.node].op in PLACEHOLDERS)
    fed = frozenset(tensors).union(control(name) for name in placeholders)
    fetched = tuple(parse_ref(name) for name in outputs)
    needed = reachable(by_name, (r.node for r in fetched), fed)
    names = tuple(dict.fromkeys(r.node for r in tensors))
    return Execution({n: by_name[n] for n in by_name if n in needed}, fed, names, fetched)
