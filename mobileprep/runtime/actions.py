"""Actions: the work of plan steps, guards of branches, and watched tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.graph.node import Node
from mobileprep.graph.refs import CONTROL, Edge, edge
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import ContextKernel, Kernel, RunContext, call_kernel


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
