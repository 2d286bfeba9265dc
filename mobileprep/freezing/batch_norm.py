"""Fused batch normalisation left in training mode, made to use its moving averages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from mobileprep.freezing.trace import is_branch_input, variable_behind
from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import ASSIGNMENTS, FUSED_BATCH_NORMS
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


MEAN_AND_VARIANCE: Final = ("moving_mean", "moving_variance")

# From a statistic of the batch to the op that moves its average.
_UPDATES: Final = frozenset(
    {"AssignSub", "AssignSubVariableOp", "AssignAdd", "AssignAddVariableOp"} | ASSIGNMENTS
)
_ON_THE_WAY: Final = frozenset(
    {"Identity", "Sub", "Mul", "Add", "AddV2", "RealDiv", "Cast", "Squeeze", "Reshape"}
    | {"Switch", "Merge", "Select", "SelectV2", "StopGradient", "Neg"}
)
_DEEPEST: Final = 8


@dataclass(frozen=True)
class Switched:
    """A graph whose batch normalisation uses moving averages.

    Args:
        graph: with the variables that it lacked.
        switched: what was in training mode and is no longer.
        left: the ops for which no averages were found.
    """

    graph: Graph
    switched: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


def moved_by(graph: Graph, statistic: Ref) -> Node | None:
    """The one variable that an op updates with a statistic of the batch, or None."""
    found = {v.name: v for v in _updated(graph, statistic)}
    named = [v for v in found.values() if is_average(v)]
    if len(found) > 1 and len(named) == 1:
        return named[0]
    return next(iter(found.values())) if len(found) == 1 else None


def is_average(variable: Node) -> bool:
    """Whether a variable has a name that libraries give to the averages of batch norm."""
    return variable.name.rpartition("/")[2] in MEAN_AND_VARIANCE


def read_of(graph: Graph, variable: Node, name: str) -> Node:
    """A new node that reads a variable, under the wanted name or one like it."""
    while name in graph:
        name += "_"
    dtype = attr.dtype(variable.attr_dtype("dtype").base)
    if variable.op == "VarHandleOp":
        return Node(name, "ReadVariableOp", (Ref(variable.name),), "", {"dtype": dtype})
    return Node(name, "Identity", (Ref(variable.name),), "", {"T": dtype})


def _updated(graph: Graph, statistic: Ref) -> Iterator[Node]:
    frontier = {statistic}
    seen = set(frontier)
    for _ in range(_DEEPEST):
        following: set[Ref] = set()
        for ref in sorted(frontier, key=str):
            for consumer in graph.consumers.get(ref.node, ()):
                if ref not in consumer.inputs:
                    continue
                if consumer.op in _UPDATES:
                    variable = variable_behind(graph, consumer.inputs[0])
                    if variable is not None:
                        yield variable
                elif consumer.op in _ON_THE_WAY:
                    following.update(Ref(consumer.name, i) for i in (0, 1))
        frontier = following - seen
        seen |= frontier


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
