"""Which dimensions of a constant run over the channels that layers put out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mobileprep.ir.graph import Graph
from mobileprep.ir.identities import IDENTITIES
from mobileprep.ir.node import Node
from mobileprep.ir.reachability import closure
from mobileprep.ir.refs import Ref
from mobileprep.rewriting.layers import LAYERS, layer_kind

_GATHERS: Final = frozenset({"Gather", "GatherV2"})


def weight_axes(graph: Graph, constant: Node) -> tuple[int, ...]:
    """The dimensions that run over output channels, or over the rows of a table, from the last.

    Args:
        graph: the graph.
        constant: a Const node.

    Returns:
        None of them where layers disagree, or something else takes the constant too.
    """
    found = {_axes(user, ref) for user, ref in _users(graph, constant)}
    axes = found.pop() if len(found) == 1 else ()
    shape = constant.attr_tensor("value").shape
    return axes if all(len(shape) + axis >= 0 for axis in axes) else ()


def _axes(user: Node, ref: Ref) -> tuple[int, ...]:
    places = [i for i, r in enumerate(user.data_inputs) if r == ref]
    if user.op in LAYERS and places == [1]:
        return layer_kind(user).channels
    if user.op in _GATHERS and places == [0]:
        return (-2,)
    return ()


def _users(graph: Graph, constant: Node) -> Iterator[tuple[Node, Ref]]:
    """What takes a constant, through identities or not, and the input by which it does."""

    def after(name: str) -> Iterator[str]:
        users = graph.consumers.get(name, ())
        return (n.name for n in users if n.op in IDENTITIES and Ref(name) in n.data_inputs)

    for name in closure([constant.name], after):
        for user in graph.consumers.get(name, ()):
            if user.op not in IDENTITIES and Ref(name) in user.data_inputs:
                yield user, Ref(name)
