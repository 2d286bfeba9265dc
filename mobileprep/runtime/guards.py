"""Actions of nodes that may be dead: they compute nothing where an input was not computed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.refs import CONTROL, Edge
from mobileprep.ir.tensor import Array
from mobileprep.ops.context import RunContext
from mobileprep.runtime.actions import DEAD, Action, Values, made

RAN = np.zeros(0, np.int8)
"""What a node's control output holds where the node ran."""


def guarded(action: Action, controls: Sequence[Edge], *, is_control: bool) -> Action:
    """The action, dead where an input or control input is.

    Args:
        action: the action.
        controls: the control inputs that may be dead.
        is_control: whether others take the node as a control input.
    """
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
    """The action of a constant that must be dead where its control inputs are."""

    def run(context: RunContext, inputs: Values) -> Values:
        return (value,)

    return guarded(Action(node, run, (), made(node, [0]), (node,)), controls, is_control=True)


def switch_action(node: Node, inputs: tuple[Edge, ...]) -> Action:
    """The action of a Switch: its tensor goes to the output that the predicate names."""

    def run(context: RunContext, inputs: Values) -> Values:
        data, pred = inputs
        return (DEAD, data) if bool(pred) else (data, DEAD)

    return Action(node, run, inputs, made(node, [0, 1]), (node,), pure=False)


def merge_action(node: Node, inputs: tuple[Edge, ...], indices: Collection[int]) -> Action:
    """The action of a Merge outside loops: the first input that was computed, and which it is.

    Args:
        node: the node.
        inputs: its inputs, but for those that cannot be computed.
        indices: the place of each among all inputs of the node.
    """
    places = [np.asarray(i, dtype=np.int32) for i in indices]

    def run(context: RunContext, inputs: Values) -> Values:
        for value, place in zip(inputs, places, strict=True):
            if value is not DEAD:
                return value, place, RAN
        return DEAD, DEAD, DEAD

    outputs = (*made(node, [0, 1]), (2, (node.name, CONTROL)))
    return Action(node, run, inputs, outputs, (node,), pure=False)
