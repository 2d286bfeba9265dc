"""Actions of plans, their execution, and errors of their steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.limits import FLOPS_VARIABLE, MEMORY_VARIABLE, OverWorkError
from mobileprep.errors import InvalidGraphError, MemoryLimitError, MobileprepError, WorkLimitError
from mobileprep.graph.node import Node
from mobileprep.graph.refs import CONTROL, Edge, edge
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import ContextKernel, Kernel, RunContext, call_kernel, charge
from mobileprep.ops.numerics.allocation import OverBudgetError, check_bytes, holding, memory_left
from mobileprep.ops.shape_inference import planned_bytes

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


class Dead:
    """Placeholder for a tensor that was not computed, because its branch did not run."""

    def __repr__(self) -> str:
        return "DEAD"


DEAD: Final = Dead()

Values = Sequence[Any]
"""Arrays, with ``DEAD`` for those that were not computed."""

Run = Callable[[RunContext, Values], Values]


class Action(Struct, frozen=True):
    """The work of one node, or of several combined nodes.

    Args:
        node: the node; for several, the one to name in messages.
        run: computes all outputs from the inputs.
        inputs: the tensors that it reads.
        outputs: the tensors that it computes, each with its index in the results of ``run``.
        covers: the nodes whose work it does, including ``node``; empty if it only delegates to
            other actions, which are observed themselves.
        pure: whether equal inputs always result in equal outputs, and no input is ever dead.
    """

    node: Node
    run: Run
    inputs: tuple[Edge, ...]
    outputs: tuple[tuple[int, Edge], ...]
    covers: tuple[Node, ...]
    pure: bool = True


def data_edges(node: Node) -> tuple[Edge, ...]:
    """Return the data inputs of a node."""
    return tuple(edge(r) for r in node.inputs if r.index != CONTROL)


def output_edges(node: Node, indices: Iterable[int]) -> tuple[tuple[int, Edge], ...]:
    """Return the outputs of an action that computes some outputs of a node."""
    return tuple((i, (node.name, i)) for i in indices)


def kernel_action(node: Node, kernel: Kernel, indices: Iterable[int]) -> Action:
    """Create the action of a node with a kernel, for the given outputs."""

    def run(context: RunContext, inputs: Values) -> Values:
        return call_kernel(kernel, node, list(inputs))

    return Action(node, run, data_edges(node), output_edges(node, indices), (node,))


def context_action(node: Node, kernel: ContextKernel, indices: Iterable[int]) -> Action:
    """Create the action of a node whose kernel needs the context."""

    def run(context: RunContext, inputs: Values) -> Values:
        outputs = kernel(context, node, *inputs)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    return Action(node, run, data_edges(node), output_edges(node, indices), (node,), pure=False)


Constants = Mapping[Edge, Any]
"""Arrays by tensor."""


RAN = np.zeros(0, np.int8)
"""Value of a node's control output if the node ran."""


def guarded(action: Action, controls: Sequence[Edge], *, is_control: bool) -> Action:
    """Make an action return dead results if an input or control input is dead."""
    count = len(action.inputs)
    size = 1 + max((i for i, _ in action.outputs), default=-1)
    dead = [DEAD] * (size + 1)

    def run(context: RunContext, inputs: Values) -> Values:
        if any(x is DEAD for x in inputs):
            return dead
        return [*action.run(context, inputs[:count])[:size], RAN]

    outputs = action.outputs
    if is_control:
        outputs = (*outputs, (size, (action.node.name, CONTROL)))
    inputs = (*action.inputs, *controls)
    return replace(action, run=run, inputs=inputs, outputs=outputs, pure=False)


def constant_action(node: Node, value: Array, controls: Sequence[Edge]) -> Action:
    """Create the action of a constant that must be dead if its control inputs are."""

    def run(context: RunContext, inputs: Values) -> Values:
        return (value,)

    return guarded(
        Action(node, run, (), output_edges(node, [0]), (node,)), controls, is_control=True
    )


def switch_action(node: Node, inputs: tuple[Edge, ...]) -> Action:
    """Create the action of a Switch: the predicate selects the output for its tensor."""

    def run(context: RunContext, inputs: Values) -> Values:
        data, pred = inputs
        return (DEAD, data) if bool(pred) else (data, DEAD)

    return Action(node, run, inputs, output_edges(node, [0, 1]), (node,), pure=False)


def merge_action(node: Node, inputs: tuple[Edge, ...], indices: Collection[int]) -> Action:
    """Create the action of a Merge outside loops: the first computed input, and its index."""
    places = [np.asarray(i, dtype=np.int32) for i in indices]

    def run(context: RunContext, inputs: Values) -> Values:
        for value, place in zip(inputs, places, strict=True):
            if value is not DEAD:
                return value, place, RAN
        return DEAD, DEAD, DEAD

    outputs = (*output_edges(node, [0, 1]), (2, (node.name, CONTROL)))
    return Action(node, run, inputs, outputs, (node,), pure=False)


def with_watches(actions: Iterable[Action], watched: Collection[Edge]) -> list[Action]:
    """Insert after each action those that report its watched outputs."""
    result: list[Action] = []
    for action in actions:
        result.append(action)
        result += watches((tensor for _, tensor in action.outputs), watched)
    return result


def watches(tensors: Iterable[Edge], watched: Collection[Edge]) -> Iterator[Action]:
    """Yield the actions that report the watched ones of some tensors."""
    for tensor in tensors:
        if tensor in watched:
            yield _watch(tensor)


def _watch(tensor: Edge) -> Action:
    def run(context: RunContext, inputs: Values) -> Values:
        # Branches that did not run have nothing to report.
        if context.watcher is not None and inputs[0] is not DEAD:
            context.watcher(tensor, inputs[0])
        return ()

    name, index = tensor
    shown = Node(f"{name}:{index}", "Watch")
    return Action(shown, run, (tensor,), (), (), pure=False)
