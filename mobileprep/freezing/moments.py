"""Batch normalisation written out in small ops and left in training mode, made to use averages.

Layers compute the batch's mean and variance with ``Mean`` and ``Squeeze``, normalise with them,
and move their averages towards them. Wherever the statistics go, the averages go instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mobileprep.freezing.averages import MEAN_AND_VARIANCE, Switched, is_average, moved_by, read_of
from mobileprep.freezing.follow import is_branch_input
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref

_MEAN_OP: Final = "Mean"
_CHOICES: Final = frozenset({"Switch", "Select", "SelectV2", "If", "StatelessIf"})


def switch_moments(graph: Graph, surroundings: Sequence[Graph]) -> Switched:
    """Use the averages wherever statistics of a batch move variables that are named as such.

    Args:
        graph: what is to be frozen.
        surroundings: graphs that hold the rest of the model: the ops that move averages.
    """
    found: dict[str, dict[str, tuple[Ref, Node]]] = {}
    for node in graph:
        if not _is_statistic(graph, node):
            continue
        statistic = Ref(node.name)
        if _is_chosen(graph, statistic):
            continue
        around = [g for g in surroundings if node.name in g]
        variable = next((v for g in around if (v := moved_by(g, statistic))), None)
        if variable is not None and is_average(variable):
            scope, _, what = variable.name.rpartition("/")
            found.setdefault(scope, {})[what] = (statistic, variable)
    pairs = {scope: two for scope, two in found.items() if len(two) == len(MEAN_AND_VARIANCE)}
    if not pairs:
        return Switched(graph)
    reads: dict[Ref, Node] = {}
    added: dict[str, Node] = {}
    for two in pairs.values():
        for statistic, variable in two.values():
            reads[statistic] = read_of(graph, variable, f"{statistic.node}/average")
            if variable.name not in graph:
                added[variable.name] = variable
    nodes = [_with_averages(n, reads) for n in graph]
    changed = graph.with_nodes([*added.values(), *reads.values(), *nodes])
    return Switched(changed, tuple(pairs))


def _is_statistic(graph: Graph, node: Node) -> bool:
    """Whether a node gives a mean over all dimensions but the channels'."""
    mean: Node | None = node
    if node.op == "Squeeze" and node.data_inputs:
        mean = graph.get(node.inputs[0].node)
    elif node.op == _MEAN_OP and node.attr_bool("keep_dims", False):
        return False
    if mean is None or mean.op != _MEAN_OP or not mean.data_inputs:
        return False
    # In a branch, the app says at run time whether it trains.
    return not is_branch_input(graph, mean.inputs[0])


def _is_chosen(graph: Graph, statistic: Ref) -> bool:
    """Whether the app says at run time if it is this statistic that counts, or the average."""
    return any(
        c.op in _CHOICES and statistic in c.inputs for c in graph.consumers.get(statistic.node, ())
    )


def _with_averages(node: Node, reads: dict[Ref, Node]) -> Node:
    if not any(r in reads for r in node.inputs):
        return node
    inputs = tuple(Ref(reads[r].name) if r in reads else r for r in node.inputs)
    return replace(node, inputs=inputs)
