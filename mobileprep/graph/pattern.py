"""Patterns of ops, and a search for matches in a graph.

A pattern names an op, several (``Conv2D|MatMul``) or any (``*``), and patterns of its inputs::

    layer = op("Conv2D|MatMul", "*", op("Const", label="weights"), label="layer")
    scaled = op("Mul", layer, "Const")

Source of the semantics: ``GraphMatcher`` of TensorFlow 1.15's graph transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from mobileprep.errors import UsageError, nearest_hint
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.reachability import execution_order

ANY: Final = "*"


class OpTypePattern(Struct, frozen=True, dict=True):
    """A pattern of a node and its inputs.

    Args:
        op: name of an op, several separated by ``|``, or ``*``.
        inputs: a pattern for each tensor input; empty to accept any inputs. Control inputs are
            ignored.
        label: name of the node in a match.
        borrowed: whether the node does not change and can be part of several matches. Other nodes
            are part of one match, which replaces or removes them.
    """

    op: str
    inputs: tuple[OpTypePattern, ...] = ()
    label: str = ""
    borrowed: bool = False

    @cached_property
    def ops(self) -> frozenset[str]:
        """The ops that `op` lists."""
        return frozenset(self.op.split("|"))

    def accepts(self, node: Node) -> bool:
        """Return whether the op of a node matches."""
        return self.op == ANY or node.op in self.ops

    def borrowing(self, *labels: str) -> OpTypePattern:
        """Return a copy in which the nodes with these labels are borrowed."""
        inputs = tuple(p.borrowing(*labels) for p in self.inputs)
        return replace(self, inputs=inputs, borrowed=self.borrowed or self.label in labels)

    def __str__(self) -> str:
        """Return the pattern in the original tool's syntax: ``{Mul, {{Conv2D}, {Const}}}``."""
        inputs = ", ".join(str(p) for p in self.inputs)
        return f"{{{self.op}, {{{inputs}}}}}" if inputs else f"{{{self.op}}}"


def op(
    ops: str, *inputs: OpTypePattern | str, label: str = "", borrowed: bool = False
) -> OpTypePattern:
    """Return a pattern; inputs given as strings are patterns that accept any inputs."""
    patterns = tuple(OpTypePattern(p) if isinstance(p, str) else p for p in inputs)
    return OpTypePattern(ops, patterns, label, borrowed)


class NodeMatch(Struct, frozen=True):
    """A node that matches a pattern, and the matches of the pattern's inputs."""

    node: Node
    pattern: OpTypePattern
    inputs: tuple[NodeMatch, ...] = ()

    def walk(self) -> Iterator[NodeMatch]:
        """Yield this match and those of its inputs, level by level."""
        level: list[NodeMatch] = [self]
        while level:
            yield from level
            level = [below for match in level for below in match.inputs]


class Match:
    """A match of a pattern in a graph.

    Args:
        root: tree of node matches.
        graph: graph of the match.
        protected: names of nodes to keep as if something else used them.
    """

    def __init__(self, root: NodeMatch, graph: Graph, protected: Collection[str] = ()) -> None:
        self.root = root
        self.graph = graph
        self.protected = protected

    @property
    def node(self) -> Node:
        """The node that matches the root of the pattern."""
        return self.root.node

    def __getitem__(self, label: str) -> Node:
        """Return the node with that label.

        Raises:
            UsageError: if no part of the pattern has the label.
        """
        node = self._labels.get(label)
        if node is None:
            message = f"no node of the pattern {self.root.pattern} is labeled {label!r}"
            raise UsageError(message, nearest_hint(label, self._labels))
        return node

    def find(self, label: str) -> Node | None:
        """Return the node with that label, or None if no part of the pattern has it."""
        return self._labels.get(label)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All matched nodes except borrowed ones, without duplicates, level by level."""
        owned = (m.node for m in self.root.walk() if not m.pattern.borrowed)
        return tuple({n.name: n for n in owned}.values())

    @cached_property
    def borrowed(self) -> frozenset[str]:
        """Names of the borrowed nodes, which do not change."""
        owned = {n.name for n in self.nodes}
        return frozenset(m.node.name for m in self.root.walk()) - owned

    @cached_property
    def used_outside(self) -> frozenset[str]:
        """Names of matched nodes that are protected, or that a node outside of the match needs."""
        return frozenset(n.name for n in self.nodes if n.name in self.protected or self._users(n))

    @cached_property
    def read_outside(self) -> frozenset[str]:
        """Names from ``used_outside`` that are needed for more than their control dependency."""
        return frozenset(
            name
            for name in self.used_outside
            if name in self.protected
            or any(r.node == name for n in self._users(self.graph[name]) for r in n.data_inputs)
        )

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(n.name for n in self.nodes)

    def _users(self, node: Node) -> list[Node]:
        """Return the nodes outside of the match that have a node of the match as input."""
        users = self.graph.consumers.get(node.name, ())
        return [user for user in users if user.name not in self._names]

    @cached_property
    def _labels(self) -> Mapping[str, Node]:
        return {m.pattern.label: m.node for m in self.root.walk() if m.pattern.label}


Check = Callable[[Match], str]
"""Reason for skipping a match, or an empty string."""


class Found(Struct, frozen=True):
    """The matches in execution order, and the number of skipped matches by reason."""

    matches: tuple[Match, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)


class GraphMatcher:
    """A search for patterns in a graph, whose matches do not share nodes.

    Args:
        graph: the graph.
        protected: see ``Match``.
    """

    def __init__(self, graph: Graph, protected: Collection[str] = ()) -> None:
        self.graph = graph
        self.protected = protected

    def find(self, pattern: OpTypePattern, check: Check | None = None) -> Found:
        """Return all matches, found in the original tool's execution order.

        If ``check`` returns a reason to skip a match, its nodes can be part of other matches.
        """
        if pattern.op != ANY and not any(n.op in pattern.ops for n in self.graph.nodes):
            return Found()
        used_names: set[str] = set()
        matches: list[Match] = []
        skipped: dict[str, int] = {}
        for node in self._order:
            root = self._match(node, pattern, used_names)
            if root is None:
                continue
            match = Match(root, self.graph, self.protected)
            reason = check(match) if check is not None else ""
            if reason:
                skipped[reason] = skipped.get(reason, 0) + 1
                continue
            used_names.update(n.name for n in match.nodes)
            matches.append(match)
        return Found(tuple(matches), skipped)

    @cached_property
    def _order(self) -> list[Node]:
        order = execution_order(self.graph)
        if len(order) < len(self.graph):
            # Nodes of a cycle have no order: visit them last, in stored order.
            sorted_names = {n.name for n in order}
            order += [n for n in self.graph if n.name not in sorted_names]
        return order

    def _match(self, node: Node, pattern: OpTypePattern, used_names: set[str]) -> NodeMatch | None:
        if not pattern.accepts(node) or node.name in used_names:
            return None
        if not pattern.inputs:
            return NodeMatch(node, pattern)
        tensors = node.data_inputs
        if len(tensors) != len(pattern.inputs):
            return None
        matches = []
        for ref, below in zip(tensors, pattern.inputs, strict=True):
            producer = self.graph.get(ref.node)
            match = None if producer is None else self._match(producer, below, used_names)
            if match is None:
                return None
            matches.append(match)
        return NodeMatch(node, pattern, tuple(matches))
