"""Actions: what a plan's steps are made of, before tensors get their places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from mobileprep.frozen import dataclass
from mobileprep.ir.node import Node
from mobileprep.ir.refs import CONTROL, Edge, edge
from mobileprep.ops.context import ContextKernel, RunContext
from mobileprep.ops.kernel import Kernel, call_kernel


class Dead:
    """In place of a tensor: it was not computed, since its branch was not taken."""

    def __repr__(self) -> str:
        return "DEAD"


DEAD: Final = Dead()

Values = Sequence[Any]
"""Arrays, or ``DEAD`` in place of one that was not computed."""

Run = Callable[[RunContext, Values], Values]


@dataclass(frozen=True, slots=True)
class Action:
    """The work of one node, or of several that are done together.

    Args:
        node: the node; of several, the one to name in messages.
        run: computes all outputs from the inputs.
        inputs: the tensors that it reads.
        outputs: the tensors that it makes, each with its place among the results of ``run``.
        covers: the nodes that it does the work of, ``node`` included; none where it only hands on
            to other actions, which are observed themselves.
        pure: whether the same inputs always give the same outputs, and no input is ever dead.
    """

    node: Node
    run: Run
    inputs: tuple[Edge, ...]
    outputs: tuple[tuple[int, Edge], ...]
    covers: tuple[Node, ...]
    pure: bool = True


def data_edges(node: Node) -> tuple[Edge, ...]:
    """The tensors that a node takes."""
    return tuple(edge(r) for r in node.inputs if r.index != CONTROL)


def made(node: Node, indices: Iterable[int]) -> tuple[tuple[int, Edge], ...]:
    """The outputs of an action that makes some outputs of a node."""
    return tuple((i, (node.name, i)) for i in indices)


def kernel_action(node: Node, kernel: Kernel, indices: Iterable[int]) -> Action:
    """The action of a node with a kernel, of whose outputs some are read."""

    def run(context: RunContext, inputs: Values) -> Values:
        return call_kernel(kernel, node, list(inputs))

    return Action(node, run, data_edges(node), made(node, indices), (node,))


def context_action(node: Node, kernel: ContextKernel, indices: Iterable[int]) -> Action:
    """The action of a node whose kernel takes the context."""

    def run(context: RunContext, inputs: Values) -> Values:
        outputs = kernel(context, node, *inputs)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    return Action(node, run, data_edges(node), made(node, indices), (node,), pure=False)


Constants = Mapping[Edge, Any]
"""Arrays by the tensor that they are."""
