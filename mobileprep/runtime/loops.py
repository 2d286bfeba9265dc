"""While loops: planning and running."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, EXITS, NEXT_ITERATIONS
from mobileprep.graph.refs import Edge, Ref
from mobileprep.ops.context import RunContext
from mobileprep.runtime.actions import DEAD, Action, Values, watches
from mobileprep.runtime.execution_plan import ExecutionPlan, placed
from mobileprep.runtime.executor import run_plan
from mobileprep.runtime.folding import fold
from mobileprep.runtime.selection import malformed_head

if TYPE_CHECKING:
    from mobileprep.runtime.regions import Region


class Head(Struct, frozen=True):
    """A Merge at the head of a loop.

    Args:
        first: which tensor it takes in the first iteration, of those that enter.
        later: which it takes from then on, of those carried on.
        places: which of its inputs these two are.
    """

    first: int
    later: int
    places: tuple[int, int]


class Loop(Struct, frozen=True):
    """A while loop, run iteration by iteration.

    A run takes the tensors that enter, then the other tensors from outside, and returns the exits.
    It ends after the iteration in which the condition is false or dead.

    Args:
        plan: one iteration. Its feeds are, in this order: the tensors that enter, value and index
            for each head, the other tensors from outside. Its fetches are the condition, the
            tensors for the next iteration, and the exits.
        constant: for each tensor that enters whether it is there in every iteration.
        heads: the merges at the head.
        exits: how many tensors leave the loop.
        name: the name of the node that says whether to go on.
        where: the graph's name, for messages.
    """

    plan: ExecutionPlan
    constant: tuple[bool, ...]
    heads: tuple[Head, ...]
    exits: int
    name: str
    where: str

    def __call__(self, context: RunContext, inputs: Values) -> Values:
        """The values of the exits."""
        entered = list(inputs[: len(self.constant)])
        outside = inputs[len(self.constant) :]
        merged = [entered[h.first] for h in self.heads]
        places = [np.asarray(h.places[0], np.int32) for h in self.heads]
        exits: list[Any] = [DEAD] * self.exits
        goes_on = any(x is not DEAD for x in merged)
        while goes_on:
            context.count_iteration(self.name, self.where)
            pairs = [x for pair in zip(merged, places, strict=True) for x in pair]
            results = run_plan(self.plan, [*entered, *pairs, *outside], context, self.where)
            condition, *carried = results[: len(results) - self.exits]
            goes_on = condition is not DEAD and bool(condition)
            leaving = results[len(results) - self.exits :]
            exits = [
                new if new is not DEAD else old for old, new in zip(exits, leaving, strict=True)
            ]
            merged = [carried[h.later] for h in self.heads]
            places = [np.asarray(h.places[1], np.int32) for h in self.heads]
            entered = [x if c else DEAD for x, c in zip(entered, self.constant, strict=True)]
        return exits


def plan_loop(inner: Region, outside: Callable[[Ref], Edge]) -> Action:
    """The action that runs a loop."""
    frame = inner.frame
    heads = [n for n in frame.nodes if inner.survey.is_head(n)]
    carrying, exits = frame.of_op(NEXT_ITERATIONS), frame.of_op(EXITS)
    started = {r.node for h in heads for r in h.data_inputs}
    entering = [
        n for n in frame.of_op(ENTERS) if n.name in started or (n.name, 0) not in inner.constants
    ]
    empty = next((n for n in (*entering, *carrying, *exits) if not n.data_inputs), None)
    if empty is not None:
        message = f"the node {empty.name!r} ({empty.op}) of a loop takes no tensor"
        raise InvalidGraphError(message, "export the graph again", inner.survey.where)
    conditions = [n for n in frame.nodes if n.op == "LoopCond"]
    if len(conditions) != 1 or not conditions[0].data_inputs:
        message = f"the loop of {frame.nodes[0].name!r} has {len(conditions)} LoopCond nodes, not 1"
        raise InvalidGraphError(message, "export the graph again", inner.survey.where)
    wanted = [inner.tensor(n.data_inputs[0]) for n in (*conditions, *carrying, *exits)]
    own = [(n.name, 0) for n in entering] + [(h.name, i) for h in heads for i in (0, 1)]
    actions, constants = [*watches(own, inner.survey.watched), *inner.actions], inner.constants
    if inner.survey.combine:
        actions, constants = fold(actions, constants, wanted, inner.survey.where)
    free = _free(actions, wanted, {*own, *constants})
    plan = placed(actions, constants, [*own, *free], wanted, inner.survey.where)
    (named,) = conditions
    loop = Loop(
        plan,
        tuple(n.attr_bool("is_constant", False) for n in entering),
        tuple(_head(h, entering, carrying, inner.survey.where) for h in heads),
        len(exits),
        named.name,
        inner.survey.where,
    )
    inputs = (*(outside(n.data_inputs[0]) for n in entering), *free)
    outputs = tuple((i, (n.name, 0)) for i, n in enumerate(exits))
    return Action(named, loop, inputs, outputs, (), pure=False)


def _free(actions: list[Action], wanted: list[Edge], known: set[Edge]) -> list[Edge]:
    """The tensors that a loop reads and that come from outside, in the order of their use."""
    made = {tensor for a in actions for _, tensor in a.outputs}
    read = dict.fromkeys([*(e for a in actions for e in a.inputs), *wanted])
    return [e for e in read if e not in made and e not in known]


def _head(head: Node, entering: list[Node], carrying: list[Node], where: str) -> Head:
    entries = {n.name: i for i, n in enumerate(entering)}
    carried = {n.name: i for i, n in enumerate(carrying)}
    names = [r.node for r in head.data_inputs]
    if len(names) == 2:
        for first, later in ((0, 1), (1, 0)):
            if names[first] in entries and names[later] in carried:
                return Head(entries[names[first]], carried[names[later]], (first, later))
    raise malformed_head(head, where)
