"""Frames of loops, and conditions under which the nodes of branches run, in control flow v1."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SWITCHES
from mobileprep.graph.refs import Edge, Ref, edge

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


_PASSING: Final = frozenset({"Identity", "LoopCond", "StopGradient"})


Literal = tuple[Edge, bool]
"""A predicate and its required value."""

Conditions = frozenset[Literal]

_NEVER: Final[Literal] = (("", 0), False)


class Branches:
    """The conditions under which the nodes of a region run; nodes are added in execution order.

    Args:
        pred: returns the value of a constant predicate, or None.
    """

    def __init__(self, pred: Callable[[Edge], bool | None]) -> None:
        self._pred = pred
        self._sources: dict[Edge, Edge] = {}
        self._of_node: dict[str, Conditions] = {}
        self._switches: dict[str, tuple[Literal, Literal]] = {}

    def add(self, node: Node) -> None:
        """Compute a node's conditions from those of its inputs, which are already added."""
        if node.op in MERGES:
            self._of_node[node.name] = self._merged(node)
            return
        self.add_unit([node.name], node.inputs)
        if node.op in SWITCHES and len(node.data_inputs) == 2:
            source = self._source(edge(node.data_inputs[1]))
            self._switches[node.name] = ((source, False), (source, True))
        elif node.op in _PASSING and node.data_inputs:
            self._sources[(node.name, 0)] = self._source(edge(node.data_inputs[0]))

    def add_unit(self, names: Iterable[str], inputs: Iterable[Ref]) -> None:
        """Add nodes that all run if all of the inputs are available."""
        conditions = frozenset().union(*(self.of(r) for r in inputs))
        # A node that requires both values of a predicate never runs.
        if any((pred, not value) in conditions for pred, value in conditions):
            conditions |= {_NEVER}
        self._of_node.update(dict.fromkeys(names, conditions))

    def of_node(self, name: str) -> Conditions:
        """Return the conditions under which a node runs."""
        return self._of_node.get(name, frozenset())

    def set_conditions(self, name: str, conditions: Conditions) -> None:
        """Add a node with the given conditions."""
        self._of_node[name] = conditions

    def predicate(self, name: str) -> Edge | None:
        """Return the predicate of a Switch; None for other nodes."""
        literals = self._switches.get(name)
        return None if literals is None else literals[0][0]

    def taken(self, node: Node) -> int | None:
        """Return the output that a Switch always selects, or None if it depends on inputs."""
        literals = self._switches.get(node.name)
        value = None if literals is None else self._pred(literals[0][0])
        return None if value is None else int(value)

    def never(self, ref: Ref) -> bool:
        """Return whether a tensor is never computed, or a node never runs, for any inputs."""
        return _NEVER in self.of(ref)

    def of(self, ref: Ref) -> Conditions:
        """Return the conditions under which a tensor is computed, or a control input has run."""
        own = self.of_node(ref.node)
        literals = self._switches.get(ref.node)
        if literals is None or ref.is_control:
            return own
        literal = literals[ref.index & 1]
        value = self._pred(literal[0])
        if value is not None:
            return own if value == literal[1] else own | {_NEVER}
        return own | {literal}

    def _source(self, tensor: Edge) -> Edge:
        return self._sources.get(tensor, tensor)

    def _merged(self, node: Node) -> Conditions:
        """Any input suffices: one of two opposite branches always runs."""
        inputs = [c for r in node.data_inputs if _NEVER not in (c := self.of(r))]
        if not inputs:
            return frozenset({_NEVER})
        if frozenset() in inputs:
            return frozenset()
        if len(inputs) == 1:
            return inputs[0]
        if len(inputs) == 2:
            first, second = inputs
            for pred, value in sorted(first - second):
                opposite = (pred, not value)
                if opposite in second and first - {(pred, value)} == second - {opposite}:
                    return first - {(pred, value)}
        return frozenset({((node.name, -2), True)})
