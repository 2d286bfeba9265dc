"""Execution plans: the order of actions, and when each tensor is freed."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from msgspec import Struct

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.refs import Edge
from mobileprep.runtime.actions import Action, Constants


class PlanStep(Struct, frozen=True):
    """One action's turn.

    Args:
        action: what is done.
        inputs: slots of the tensors that it reads.
        outputs: pairs of a result's index and its slot.
        frees: slots that nothing reads after this step.
    """

    action: Action
    inputs: tuple[int, ...]
    outputs: tuple[tuple[int, int], ...]
    frees: tuple[int, ...]


class ExecutionPlan(Struct, frozen=True):
    """How to compute some tensors from others.

    Args:
        constants: what the slots hold before anything runs; None but for constants.
        feeds: the slot of each fed tensor; None where nothing reads it.
        steps: the work, in order.
        fetches: the slot of each fetched tensor.
    """

    constants: tuple[Any, ...]
    feeds: tuple[int | None, ...]
    steps: tuple[PlanStep, ...]
    fetches: tuple[int, ...]


def placed(
    actions: Sequence[Action],
    constants: Constants,
    feeds: Sequence[Edge],
    wanted: Sequence[Edge],
    where: str,
) -> ExecutionPlan:
    """The plan of some actions in the order given, a slot for every tensor that anything reads."""
    read = {e for a in actions for e in a.inputs} | set(wanted)
    _check_given(read, {*constants, *feeds, *(e for a in actions for _, e in a.outputs)}, where)
    slots: dict[Edge, int] = {}

    def slot(tensor: Edge) -> int:
        return slots.setdefault(tensor, len(slots))

    given = tuple(slot(e) if e in read else None for e in feeds)
    held = {slot(e): array for e, array in constants.items() if e in read}
    places = [
        (tuple(slot(e) for e in a.inputs), tuple((i, slot(e)) for i, e in a.outputs))
        for a in actions
    ]
    fetches = tuple(slot(e) for e in wanted)
    last: dict[int, int] = {}
    for position, (inputs, outputs) in enumerate(places):
        last.update(dict.fromkeys((*inputs, *(s for _, s in outputs)), position))
    frees: list[list[int]] = [[] for _ in actions]
    for number, position in last.items():
        if number not in held and number not in fetches:
            frees[position].append(number)
    steps = tuple(
        PlanStep(action, inputs, outputs, tuple(freed))
        for action, (inputs, outputs), freed in zip(actions, places, frees, strict=True)
    )
    return ExecutionPlan(tuple(held.get(i) for i in range(len(slots))), given, steps, fetches)


def _check_given(read: Set[Edge], given: Set[Edge], where: str) -> None:
    """Refuse what nothing gives: of a node that runs, its results are counted then."""
    lacking = read - given
    if lacking:
        name, index = min(lacking)
        message = f"node {name!r} has no output {index}"
        raise InvalidGraphError(message, "read another output, or export the graph again", where)
