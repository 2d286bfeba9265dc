"""Which axis of a tensor has the time steps, and the nodes of a graph with fewer of them.

A tensor of ``[outer, time, inner]`` elements keeps this order through reshapes, so that its axis of
time steps is known without names or conventions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct

from mobileprep.graph.bypass import constant_behind
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import Edge, FreshNames, Ref, edge
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.litert.refusals import CannotExpressError
from mobileprep.ops.shape_inference import Shapes, shape_of


class Along(Struct, frozen=True):
    """A tensor with a part for each time step.

    Args:
        axis: the axis with the time steps.
        outer: number of parts before the time steps that a reshape has merged into the axis.
        inner: number of parts after them.
    """

    axis: int
    outer: int = 1
    inner: int = 1


class Last(Struct, frozen=True):
    """A tensor computed from the last time step, or from a state after it."""


LAST: Final = Last()
Mark: TypeAlias = Along | Last | None
"""How a tensor depends on the time steps; None if it does not."""

CUT: Final = "end the model before this node, or leave out 'streaming'"
MIXES: Final = "it may combine several time steps"


class Steps:
    """The nodes of a graph with fewer time steps.

    Args:
        graph: the graph, in which all sizes are known.
        shapes: the shapes of its tensors.
        time: the number of time steps.
        count: the number to shorten it to.
        names: generator of new names.
    """

    def __init__(
        self,
        graph: Graph,
        shapes: Mapping[str, Shapes],
        time: int,
        count: int,
        names: FreshNames,
    ) -> None:
        self.graph = graph
        self.time = time
        self.count = count
        self.names = names
        self.nodes: list[Node] = []
        self.marks: dict[Edge, Mark] = {}
        self.last: set[str] = set()
        self.same: dict[Edge, Ref] = {}
        self._shapes = shapes

    def mark(self, ref: Ref) -> Mark:
        """Return how a tensor depends on the time steps."""
        return self.marks.get(edge(ref), LAST if ref.node in self.last else None)

    def shape(self, ref: Ref) -> tuple[int, ...]:
        """Return a shape in the original graph."""
        shape = shape_of(self._shapes, ref)
        if shape is None or -1 in shape:
            reason = f"the shape of {ref!s} is not known"
            raise CannotExpressError(reason, "give the shapes of all inputs")
        return shape

    def constant(self, ref: Ref) -> Array:
        """Return the value of a constant operand."""
        value = constant_behind(self.graph, ref)
        if value is None:
            reason = f"its operand {ref!s} is not constant"
            raise CannotExpressError(reason, CUT)
        return value.array()

    def axes(self, ref: Ref, rank: int) -> list[int]:
        """Return the axes that a constant names."""
        return [int(axis) % rank for axis in self.constant(ref).reshape(-1)]

    def add(self, node: Node) -> None:
        """Add a node, which reads the tensors that replace others."""
        self.nodes.append(node.with_inputs(tuple(map(self.final, node.inputs))))

    def final(self, ref: Ref) -> Ref:
        """Return the tensor that replaces another one, or the same tensor."""
        return self.same.get(edge(ref), ref)

    def new(self, like: Node, what: str, value: Array) -> Ref:
        """Add a constant."""
        name = self.names.name(f"{like.name}/{what}")
        self.add(constant(name, Tensor.of(value)))
        return Ref(name)

    def with_constant(self, node: Node, index: int, value: Array) -> Node:
        """Return a node with another constant operand of the same dtype."""
        ref = self.new(node, "steps", value.astype(self.constant(node.data_inputs[index]).dtype))
        inputs = node.data_inputs
        return node.with_inputs((*inputs[:index], ref, *inputs[index + 1 :]))

    def size(self, mark: Along) -> int:
        """Return the new size of an axis."""
        return mark.outer * self.count * mark.inner

    def shortened(self, node: Node, ref: Ref, mark: Along) -> Ref:
        """Return a tensor that is the same in each time step for the new number of them."""
        value = constant_behind(self.graph, ref)
        shape = self.shape(ref)
        if value is None or shape[mark.axis] != mark.outer * self.time * mark.inner:
            raise CannotExpressError(MIXES, CUT)
        before, after = shape[: mark.axis], shape[mark.axis + 1 :]
        parts = value.array().reshape(*before, mark.outer, self.time, mark.inner, *after)
        first = np.take(parts, [0] * self.count, mark.axis + 1)
        if not np.array_equal(parts, np.broadcast_to(parts[_first(mark)], parts.shape)):
            reason = f"its operand {ref!s} differs from time step to time step"
            raise CannotExpressError(reason, CUT)
        return self.new(node, "steps", first.reshape(*before, self.size(mark), *after))


def _first(mark: Along) -> tuple[slice, ...]:
    return (*[slice(None)] * (mark.axis + 1), slice(0, 1))
