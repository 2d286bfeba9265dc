"""Frames: the assignment of nodes to the while loops of control flow v1."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, EXITS, NEXT_ITERATIONS
from mobileprep.graph.refs import Edge, edge

# Far more than any model has; the loops around each node are compared.
_DEEPEST: Final = 64


@dataclass(eq=False, slots=True)
class Frame:
    """The nodes of a while loop, or of the whole graph.

    Args:
        name: name of the loop; empty for the whole graph.
        parent: the enclosing frame.
        nodes: nodes directly in this frame, each after its inputs.
        children: the loops directly in this frame.
    """

    name: str
    parent: Frame | None
    nodes: list[Node] = field(default_factory=list)
    children: list[Frame] = field(default_factory=list)

    def ancestors(self) -> list[Frame]:
        """Return the frame itself and the enclosing frames, innermost first."""
        frames: list[Frame] = []
        frame: Frame | None = self
        while frame is not None:
            frames.append(frame)
            frame = frame.parent
        return frames

    def of_op(self, ops: Collection[str]) -> list[Node]:
        """Return the nodes with one of these ops."""
        return [n for n in self.nodes if n.op in ops]


class Frames:
    """The frame of every node.

    Args:
        nodes: the nodes, each after its inputs (except for edges that close loops).
        fed: tensors that are fed.
        where: name of the graph, for messages.

    Raises:
        InvalidGraphError: if a node uses tensors of two loops, or leaves a loop that it is not in.
    """

    def __init__(self, nodes: Sequence[Node], fed: Collection[Edge], where: str) -> None:
        self.root = Frame("", None)
        self.of_node: dict[str, Frame] = {}
        # Frame of a node's outputs: for an Exit, the one outside of its loop.
        self._outputs: dict[str, Frame] = {}
        self._where = where
        for node in nodes:
            frame = self._frame(node, fed)
            if node.op in NEXT_ITERATIONS and frame.parent is None:
                message = f"node {node.name!r} ({node.op}) goes round a loop that it is not in"
                raise InvalidGraphError(message, "export the graph again", self._where)
            self.of_node[node.name] = frame
            self._outputs[node.name] = self._around(node, frame) if node.op in EXITS else frame
            frame.nodes.append(node)

    def of_output(self, name: str) -> Frame:
        """Return the frame of a node's outputs; the outermost for inputs."""
        return self._outputs.get(name, self.root)

    def _frame(self, node: Node, fed: Collection[Edge]) -> Frame:
        frames = [
            self._outputs[r.node]
            for r in node.inputs
            if edge(r) not in fed and r.node in self._outputs
        ]
        deepest = max(frames, key=lambda frame: len(frame.ancestors()), default=self.root)
        around = deepest.ancestors()
        if any(frame not in around for frame in frames):
            message = f"node {node.name!r} ({node.op}) takes tensors of two loops"
            raise InvalidGraphError(message, "export the graph again", self._where)
        return self._entered(node, deepest) if node.op in ENTERS else deepest

    def _entered(self, node: Node, parent: Frame) -> Frame:
        name = node.attr_str("frame_name")
        for child in parent.children:
            if child.name == name:
                return child
        if len(parent.ancestors()) > _DEEPEST:
            message = f"node {node.name!r} ({node.op}) begins a loop in more than {_DEEPEST} others"
            raise InvalidGraphError(message, "export the graph again", self._where)
        child = Frame(name, parent)
        parent.children.append(child)
        return child

    def _around(self, node: Node, frame: Frame) -> Frame:
        if frame.parent is None:
            message = f"node {node.name!r} ({node.op}) leaves a loop that it is not in"
            raise InvalidGraphError(message, "export the graph again", self._where)
        return frame.parent
