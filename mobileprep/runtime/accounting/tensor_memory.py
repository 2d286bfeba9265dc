"""Executions of nodes, and the memory that the tensors they make take together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from mobileprep.frozen import dataclass
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Edge, edge
from mobileprep.ir.tensor import Array

# Their outputs are their first input, under another name or shape.
VIEWS: Final = frozenset(
    {
        "Bitcast",
        "CheckNumerics",
        "CheckNumericsV2",
        "EnsureShape",
        "Enter",
        "Exit",
        "ExpandDims",
        "Identity",
        "LoopCond",
        "Merge",
        "NextIteration",
        "PlaceholderWithDefault",
        "PreventGradient",
        "Print",
        "QuantizedReshape",
        "RefIdentity",
        "Reshape",
        "Snapshot",
        "Squeeze",
        "StopGradient",
        "Switch",
    }
)


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """A tensor's shape, and the bytes of one of its elements (0 for texts and handles)."""

    shape: TensorShape
    itemsize: int

    @classmethod
    def of(cls, array: Array) -> TensorLayout:
        """The shape and the bytes of an array."""
        return cls(array.shape, 0 if array.dtype == object else array.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, 0 where they are not known."""
        if self.shape is None or min(self.shape, default=0) < 0:
            return 0
        return math.prod(self.shape) * self.itemsize


@dataclass(frozen=True, slots=True)
class Executed:
    """One execution of a node, and what it made."""

    node: Node
    outputs: tuple[TensorLayout, ...]


@dataclass(slots=True)
class Recorder:
    """An observer of the interpreter that notes every execution of a single node."""

    ran: list[Executed] = field(default_factory=list)

    def __call__(
        self, nodes: Sequence[Node], start: float, seconds: float, outputs: Sequence[Array]
    ) -> None:
        """See ``Observer``."""
        if len(nodes) == 1:
            self.ran.append(Executed(nodes[0], tuple(map(TensorLayout.of, outputs))))


@dataclass(slots=True)
class _Buffer:
    """Memory of one tensor and its views: bytes, and the steps that it is needed from and to."""

    nbytes: int
    first: int
    last: int


def peak_bytes(
    ran: Sequence[Executed], given: Mapping[Edge, TensorLayout], wanted: Sequence[Edge]
) -> int:
    """The most bytes that fed and computed tensors take at once; constants do not count.

    A tensor is there from the step that makes it to the one that reads it last, a fed one from
    the start, a wanted one to the end. Views take no memory of their own.
    """
    buffers = [_Buffer(s.nbytes, 0, 0) for s in given.values()]
    current = dict(zip(given, buffers, strict=True))
    for step, executed in enumerate(ran):
        node = executed.node
        sources = [current.get(edge(r)) for r in node.data_inputs]
        for source in sources:
            if source is not None:
                source.last = step
        viewed = sources[0] if node.op in VIEWS and sources else None
        for index, spec in enumerate(executed.outputs):
            # A view of a constant is a constant.
            size = 0 if node.op in VIEWS and sources else spec.nbytes
            made = viewed if viewed is not None else _Buffer(size, step, step)
            if made is not viewed:
                buffers.append(made)
            current[(node.name, index)] = made
    for tensor in wanted:
        if tensor in current:
            current[tensor].last = len(ran)
    return _most(buffers, len(ran) + 1)


def _most(buffers: Sequence[_Buffer], steps: int) -> int:
    """The highest sum of buffers that are needed in the same step."""
    change = [0] * (steps + 1)
    for buffer in buffers:
        change[buffer.first] += buffer.nbytes
        change[buffer.last + 1] -= buffer.nbytes
    most = total = 0
    for difference in change:
        total += difference
        most = max(most, total)
    return most
