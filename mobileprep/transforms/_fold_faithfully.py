"""Puts folded constants into a graph as the original tool does, names and order included.

Source: ``ReplaceTensorWithConstant``, ``ReplaceSendRecvs`` and ``RemoveUnusedNodes`` of TensorFlow
1.15.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node, constant
from mobileprep.ir.refs import Ref, control, parse_ref
from mobileprep.transforms._execution import Execution, reachable
from mobileprep.transforms._folding import Folding
from mobileprep.transforms.base import refuse

_SERIAL = "__cf__"


def fetch_order(run: Execution) -> list[str]:
    """The fetched nodes in the order in which the original tool starts from them."""
    used = {r.node for n in run.nodes.values() for r in n.inputs}
    names = {f"_send_{r.node}_{r.index}": r.node for r in run.fetched}
    # A node that nothing uses leads to the graph's end by itself too.
    names |= {r.node: r.node for r in run.fetched if r.node not in used}
    return [names[key] for key in sorted(names)]


def check_feeds(run: Execution) -> None:
    """Every placeholder that the outputs need must be fed.

    Raises:
        TransformError: one is not.
    """
    for node in run.nodes.values():
        if node.op in ("Placeholder", "PlaceholderV2") and Ref(node.name) not in run.fed:
            message = f"the outputs need the placeholder {node.name!r}, which is no input"
            raise refuse("fold_constants", message, "name it in the inputs")


def folded_faithfully(graph: Graph, folding: Folding, serials: Counter[str]) -> list[Node]:
    """The nodes of the folded graph in the original's order.

    Args:
        graph: the graph as it was given.
        folding: what to replace by constants.
        serials: the counter that names are numbered with, over all steps of a chain.

    Raises:
        TransformError: a node that is fed is no placeholder.
    """
    run = folding.run
    folded, sources = _constants(folding, serials)
    nodes = {n.name: _rewired(n, run.fed, sources) for n in run.nodes.values()}
    nodes |= {n.name: n for n in folded}
    inputs = [r.node for r in sorted(run.fed, key=str) if not r.is_control]
    nodes |= {name: graph[name] for name in reversed(inputs) if name not in nodes}
    fed = frozenset(r for r in run.fed if not r.is_control)
    needed = reachable(nodes, (r.node for r in run.fetched), fed).union(inputs)
    return [_as_input(n) if n.name in inputs else n for n in nodes.values() if n.name in needed]


def _constants(
    folding: Folding, serials: Counter[str]
) -> tuple[list[Node], Mapping[Ref, Ref]]:
    """New constants, and for each tensor the one that replaces it."""
    keys = _sort_keys(folding, serials)
    nodes, sources = [], {}
    for number, ref in enumerate(sorted(folding.values, key=keys.__getitem__)):
        name = f"{ref.node}/_{number}{_SERIAL}{_next(serials)}"
        awaited = _awaited(folding.constant.controls[ref.node], folding.run.fed)
        nodes.append(constant(name, folding.values[ref], inputs=awaited))
        sources[ref] = Ref(name)
    return nodes, sources
