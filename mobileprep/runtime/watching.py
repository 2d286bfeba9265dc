"""Actions that show tensors to whoever watches them, as each is computed and before it is freed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mobileprep.ir.node import Node
from mobileprep.ir.refs import Edge
from mobileprep.ops.context import RunContext
from mobileprep.runtime.actions import DEAD, Action, Values


def with_watches(actions: Iterable[Action], watched: Collection[Edge]) -> list[Action]:
    """The actions, and after each those that show what it made."""
    found: list[Action] = []
    for action in actions:
        found.append(action)
        found += watches((made for _, made in action.outputs), watched)
    return found


def watches(tensors: Iterable[Edge], watched: Collection[Edge]) -> Iterator[Action]:
    """The actions that show those of some tensors that are watched."""
    for tensor in tensors:
        if tensor in watched:
            yield _watch(tensor)


def _watch(tensor: Edge) -> Action:
    def run(context: RunContext, inputs: Values) -> Values:
        # Of a branch that was not taken there is nothing to see.
        if context.watcher is not None and inputs[0] is not DEAD:
            context.watcher(tensor, inputs[0])
        return ()

    name, index = tensor
    shown = Node(f"{name}:{index}", "Watch")
    return Action(shown, run, (tensor,), (), (), pure=False)
