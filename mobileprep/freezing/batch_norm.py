"""Fused batch normalisation left in training mode, made to use its moving averages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mobileprep.freezing.averages import MEAN_AND_VARIANCE, Switched, moved_by, read_of
from mobileprep.freezing.follow import is_branch_input, variable_behind
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import FUSED_BATCH_NORMS
from mobileprep.ir.refs import Ref

_SCALE, _OFFSET, _MEAN, _VARIANCE = 1, 2, 3, 4  # inputs; outputs 1 and 2 are the batch's own


def switch_fused(graph: Graph, surroundings: Sequence[Graph]) -> Switched:
    """Switch every fused batch normalisation in training mode to inference.

    Its averages are the variables that its statistics move, or else those beside its scale
    under the names that all libraries give them.

    Args:
        graph: what is to be frozen.
        surroundings: graphs that hold the rest of the model: the ops that move averages.
    """
    nodes: list[Node] = []
    done: list[str] = []
    left: list[str] = []
    added: dict[str, Node] = {}
    for node in graph:
        if not _is_left_in_training(graph, node):
            nodes.append(node)
            continue
        found = _averages(graph, node, surroundings)
        if found is None:
            left.append(node.name)
            nodes.append(node)
            continue
        done.append(node.name)
        reads = [
            read_of(graph, variable, f"{node.name}/{what}")
            for variable, what in zip(found, MEAN_AND_VARIANCE, strict=True)
        ]
        added.update({v.name: v for v in found if v.name not in graph})
        inputs = (*node.inputs[:_MEAN], *(Ref(r.name) for r in reads), *node.control_inputs)
        switched = replace(node, inputs=inputs).with_attrs(is_training=attr.boolean(False))
        nodes += [*reads, switched]
    if not done:
        return Switched(graph, left=tuple(left))
    return Switched(graph.with_nodes([*added.values(), *nodes]), tuple(done), tuple(left))


def _is_left_in_training(graph: Graph, node: Node) -> bool:
    if node.op not in FUSED_BATCH_NORMS or not node.attr_bool("is_training", True):
        return False
    # In a branch, the app says at run time whether it trains.
    return bool(node.inputs) and not is_branch_input(graph, node.inputs[0])


def _averages(graph: Graph, node: Node, surroundings: Sequence[Graph]) -> tuple[Node, Node] | None:
    given = [variable_behind(graph, r) for r in node.data_inputs[_MEAN : _VARIANCE + 1]]
    if len(given) == 2 and given[0] is not None and given[1] is not None:
        return given[0], given[1]
    for around in surroundings:
        if node.name in around:
            moved = [moved_by(around, Ref(node.name, output)) for output in (1, 2)]
            if moved[0] is not None and moved[1] is not None and moved[0] != moved[1]:
                return moved[0], moved[1]
    for around in surroundings:
        named = _beside_scale(around, graph, node)
        if named is not None:
            return named
    return None


def _beside_scale(around: Graph, graph: Graph, node: Node) -> tuple[Node, Node] | None:
    for index in (_SCALE, _OFFSET):
        beside = variable_behind(graph, node.inputs[index]) if index < len(node.inputs) else None
        if beside is None:
            continue
        scope = beside.name.rpartition("/")[0]
        mean, variance = (around.get(f"{scope}/{name}") for name in MEAN_AND_VARIANCE)
        if mean is not None and variance is not None:
            return mean, variance
    return None
