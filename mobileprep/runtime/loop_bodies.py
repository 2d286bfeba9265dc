"""Planning a while loop: what enters it, what it carries on, what leaves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mobileprep.errors import InvalidGraphError
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import ENTERS, EXITS, NEXT_ITERATIONS
from mobileprep.ir.refs import Edge, Ref
from mobileprep.runtime.actions import Action
from mobileprep.runtime.execution_plan import placed
from mobileprep.runtime.folding import fold
from mobileprep.runtime.loops import Head, Loop
from mobileprep.runtime.survey import malformed_head
from mobileprep.runtime.watching import watches

if TYPE_CHECKING:
    from mobileprep.runtime.regions import Region


def plan_loop(inner: Region, outside: Callable[[Ref], Edge]) -> Action:
    """The action that runs a loop.

    Args:
        inner: the loop's region.
        outside: the tensor that a reference names in the frame around the loop.

    Raises:
        InvalidGraphError: a Merge at the head takes something else than what enters.
    """
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
