"""Actions: what a plan's steps are made of, before tensors get their places."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor import Array
from mobileprep.ops.kernel import Kernel, call_kernel

Edge = tuple[str, int]
"""A tensor: its node's name, and which of the node's outputs it is."""

Run = Callable[[Sequence[Array]], Sequence[Array]]


@dataclass(frozen=True, slots=True)
class Action:
    """The work of one node, or of several that are done together.

    Args:
        node: the node; of several, the first.
        run: computes all outputs from the inputs.
        inputs: the tensors that it reads.
        outputs: the tensors that it makes, each with its place among the results of ``run``.
        covers: the nodes that it does the work of, ``node`` included.
        pure: whether the same inputs always give the same outputs.
    """

    node: Node
    run: Run
    inputs: tuple[Edge, ...]
    outputs: tuple[tuple[int, Edge], ...]
    covers: tuple[Node, ...]
    pure: bool = True


def edge(ref: Ref) -> Edge:
    """The tensor that a reference names."""
    return ref.node, ref.index


def kernel_action(node: Node, kernel: Kernel, indices: Iterable[int]) -> Action:
    """The action of a node with a kernel, of whose outputs some are read."""

    def run(inputs: Sequence[Array]) -> Sequence[Array]:
        return call_kernel(kernel, node, list(inputs))

    inputs = tuple(edge(r) for r in node.data_inputs)
    outputs = tuple((i, (node.name, i)) for i in indices)
    return Action(node, run, inputs, outputs, (node,))


class Uses:
    """Who makes and who reads each tensor.

    Args:
        actions: the actions.
        wanted: tensors that must not disappear: those fetched.
    """

    def __init__(self, actions: Sequence[Action], wanted: Collection[Edge]) -> None:
        self.makers: dict[Edge, Action] = {}
        self.readers: dict[Edge, list[Action]] = {}
        self._wanted = frozenset(wanted)
        for action in actions:
            for _, made in action.outputs:
                self.makers[made] = action
            for read in action.inputs:
                self.readers.setdefault(read, []).append(action)

    def only_reader(self, made: Edge) -> Action | None:
        """The one action that reads a tensor, or None where several do or a user does."""
        readers = self.readers.get(made, [])
        return readers[0] if len(readers) == 1 and made not in self._wanted else None


Constants = Mapping[Edge, Array]
