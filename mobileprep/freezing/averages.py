"""Moving averages: the variables that training keeps of a batch's statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mobileprep.freezing.follow import variable_behind
from mobileprep.frozen import dataclass
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import ASSIGNMENTS
from mobileprep.ir.refs import Ref

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
