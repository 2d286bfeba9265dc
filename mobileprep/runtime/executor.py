"""Execution of plans, and errors of their steps."""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from typing import Any

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import FLOPS_VARIABLE, MEMORY_VARIABLE, OverWorkError
from mobileprep.errors import InvalidGraphError, MemoryLimitError, MobileprepError, WorkLimitError
from mobileprep.graph.refs import Edge
from mobileprep.ops.kernel import RunContext, charge
from mobileprep.ops.numerics.allocation import OverBudgetError, check_bytes, holding, memory_left
from mobileprep.ops.shape_inference import planned_bytes
from mobileprep.runtime.actions import DEAD, RAN, Action, Constants, Values

# Exceptions that numpy raises if shapes, types, indices, or sizes do not match.
_FAULTS = (ValueError, TypeError, IndexError, ArithmeticError, MemoryError)


# Inputs below this size are small compared to any useful limit.
_LARGE = 1 << 20


_MOST_SHOWN = 10


_LESS_MEMORY = f"feed it less at once, or allow more by --memory or {MEMORY_VARIABLE}"


_LESS_WORK = f"feed it less at once, or allow more by --max_flops or {FLOPS_VARIABLE}"


def perform(action: Action, inputs: Values, context: RunContext, where: str) -> Values:
    """Run an action and return its results."""
    try:
        _check_growth(action, inputs)
        results = action.run(context, inputs)
        # An action without own nodes forwards to others, which are charged themselves.
        if action.covers:
            charge(action.node.op, inputs, results)
    except MobileprepError as error:
        raise _placed(error, action, where) from error
    except OverBudgetError as error:
        raise MemoryLimitError(_over(action, inputs, error), _LESS_MEMORY, where) from error
    except OverWorkError as error:
        raise WorkLimitError(_over(action, inputs, error), _LESS_WORK, where) from error
    except _FAULTS as error:
        raise _failure(action, inputs, error, where) from error
    except AttributeError as error:
        # In a malformed loop, a value of the first iteration may not be an array in the second.
        if not any(x is DEAD for x in inputs):
            raise
        raise _failure(action, inputs, error, where) from error
    if action.outputs and action.outputs[-1][0] >= len(results):
        name, index = action.outputs[-1][1]
        message = f"node {name!r} ({action.node.op}) has no output {index}"
        raise InvalidGraphError(message, f"it has {len(results)}", where)
    return results


def _check_growth(action: Action, inputs: Values) -> None:
    """Raise an error for an action whose tensors may exceed the remaining memory.

    Kernels with results larger than their inputs check this themselves. Kernels that read much and
    return little pass, too.
    """
    input_bytes = sum(x.nbytes for x in inputs if isinstance(x, np.ndarray))
    if input_bytes > _LARGE and action.outputs and input_bytes > memory_left(input_bytes):
        planned = planned_bytes(action.node, inputs) if action.covers == (action.node,) else None
        check_bytes(input_bytes if planned is None else planned, "its result")


def _over(action: Action, inputs: Values, error: Exception) -> str:
    return f"node {action.node.name!r} ({action.node.op}) on {_all_described(inputs)}: {error}"


def _placed(error: MobileprepError, action: Action, where: str) -> MobileprepError:
    """Add the node to an error."""
    name = repr(action.node.name)
    message = error.message
    if name not in message:
        # Errors about other files that the graph names mention the graph, too.
        graph = f" of {where}" if error.where not in ("", where) else ""
        message = f"node {name} ({action.node.op}){graph}: {message}"
    return error.at(error.where or where, message=message)


def _failure(action: Action, inputs: Values, error: Exception, where: str) -> InvalidGraphError:
    reason = str(error) or type(error).__name__
    operands = _all_described(inputs)
    message = f"node {action.node.name!r} ({action.node.op}) cannot run on {operands}: {reason}"
    hint = "check the shapes and types that are fed, and the graph's inputs"
    return InvalidGraphError(message, hint, where)


def _all_described(inputs: Values) -> str:
    shown = [described(x) for x in inputs[:_MOST_SHOWN]]
    if len(inputs) > _MOST_SHOWN:
        shown.append(f"and {len(inputs) - _MOST_SHOWN} more")
    return ", ".join(shown) or "no inputs"


def described(value: object) -> str:
    """Format the type and shape of an array, such as float32[1, 224, 224, 3]."""
    if not isinstance(value, np.ndarray):
        return "nothing"
    kind = "object" if value.dtype == object else value.dtype.name
    return f"{kind}{list(value.shape)}"


def run_plan(
    plan: ExecutionPlan, feeds: Sequence[Any], context: RunContext, where: str
) -> list[Any]:
    """Run a plan; feeds and results are in its order."""
    values: list[Any] = list(plan.constants)
    for slot, value in zip(plan.feeds, feeds, strict=True):
        if slot is not None:
            values[slot] = value
    with holding(values) as held:
        for step in plan.steps:
            inputs = [values[slot] for slot in step.inputs]
            if context.observer is None or not step.action.covers:
                results = perform(step.action, inputs, context, where)
            else:
                results = _observed(step, inputs, context, where)
            for index, slot in step.outputs:
                result = values[slot] = results[index]
                held.made += getattr(result, "nbytes", 0)
            for slot in step.frees:
                values[slot] = None
    return [values[slot] for slot in plan.fetches]


def _observed(step: PlanStep, inputs: list[Any], context: RunContext, where: str) -> Values:
    start = time.perf_counter()
    results = perform(step.action, inputs, context, where)
    seconds = time.perf_counter() - start
    # Branches that did not run are not reported.
    if context.observer is not None and not any(x is DEAD for x in results):
        outputs = [x for x in results if x is not RAN]
        context.observer(step.action.covers, start, seconds, outputs)
    return results


class PlanStep(Struct, frozen=True):
    """One step of a plan.

    Args:
        action: the action to run.
        inputs: slots of the tensors that it reads.
        outputs: pairs of a result's index and its slot.
        frees: slots that nothing reads after this step.
    """

    action: Action
    inputs: tuple[int, ...]
    outputs: tuple[tuple[int, int], ...]
    frees: tuple[int, ...]


class ExecutionPlan(Struct, frozen=True):
    """The steps that compute some tensors from others.

    Args:
        constants: the initial value of each slot; None except for constants.
        feeds: the slot of each fed tensor; None if nothing reads it.
        steps: the steps, in order.
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
    fetches: Sequence[Edge],
    where: str,
) -> ExecutionPlan:
    """Create the plan of ordered actions, with a slot for every tensor that is read."""
    read = {e for a in actions for e in a.inputs} | set(fetches)
    _check_available(read, {*constants, *feeds, *(e for a in actions for _, e in a.outputs)}, where)
    slots: dict[Edge, int] = {}

    def slot(tensor: Edge) -> int:
        return slots.setdefault(tensor, len(slots))

    feed_slots = tuple(slot(e) if e in read else None for e in feeds)
    held = {slot(e): array for e, array in constants.items() if e in read}
    places = [
        (tuple(slot(e) for e in a.inputs), tuple((i, slot(e)) for i, e in a.outputs))
        for a in actions
    ]
    fetch_slots = tuple(slot(e) for e in fetches)
    last: dict[int, int] = {}
    for position, (inputs, outputs) in enumerate(places):
        last.update(dict.fromkeys((*inputs, *(s for _, s in outputs)), position))
    frees: list[list[int]] = [[] for _ in actions]
    for number, position in last.items():
        if number not in held and number not in fetch_slots:
            frees[position].append(number)
    steps = tuple(
        PlanStep(action, inputs, outputs, tuple(freed))
        for action, (inputs, outputs), freed in zip(actions, places, frees, strict=True)
    )
    return ExecutionPlan(
        tuple(held.get(i) for i in range(len(slots))), feed_slots, steps, fetch_slots
    )


def _check_available(read: Set[Edge], available: Set[Edge], where: str) -> None:
    """Raise an error for tensors that nothing computes; runs check the outputs of nodes."""
    lacking = read - available
    if lacking:
        name, index = min(lacking)
        message = f"node {name!r} has no output {index}"
        raise InvalidGraphError(message, "read another output, or export the graph again", where)
