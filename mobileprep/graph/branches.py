"""Conditions under which the nodes of a graph with Switch nodes run.

A node that depends on an output of a Switch runs if the predicate has that value. Otherwise, its
outputs are dead, and so are all nodes that depend on them, up to a Merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from mobileprep.graph.node import Node
from mobileprep.graph.op_sets import MERGES, SWITCHES
from mobileprep.graph.refs import Edge, Ref, edge

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
