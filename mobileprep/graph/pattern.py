"""Patterns of ops, and the places of a graph that fit them.

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
    """What a node must look like.

    Args:
        op: an op's name, several divided by ``|``, or ``*``.
        inputs: a pattern for each tensor input; none at all accepts any inputs. Control
            inputs are not looked at.
        label: the name that a match knows the node by.
        borrowed: the node stays where it is and may serve several matches; without it, a node
            belongs to one match, which puts it back or does away with it.
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
        """Whether the node's op is one of this pattern's."""
        return self.op == ANY or node.op in self.ops

    def borrowing(self, *labels: str) -> OpTypePattern:
        """The pattern with the nodes of those labels borrowed."""
        inputs = tuple(p.borrowing(*labels) for p in self.inputs)
        return replace(self, inputs=inputs, borrowed=self.borrowed or self.label in labels)

    def __str__(self) -> str:
        """The pattern as the original tool spells it: ``{Mul, {{Conv2D}, {Const}}}``."""
        inputs = ", ".join(str(p) for p in self.inputs)
        return f"{{{self.op}, {{{inputs}}}}}" if inputs else f"{{{self.op}}}"


def op(
    ops: str, *inputs: OpTypePattern | str, label: str = "", borrowed: bool = False
) -> OpTypePattern:
    """A pattern; inputs given as text are patterns without inputs of their own."""
    patterns = tuple(OpTypePattern(p) if isinstance(p, str) else p for p in inputs)
    return OpTypePattern(ops, patterns, label, borrowed)


class NodeMatch(Struct, frozen=True):
    """A node that fits a pattern, and the matches of the pattern's inputs."""

    node: Node
    pattern: OpTypePattern
    inputs: tuple[NodeMatch, ...] = ()

    def walk(self) -> Iterator[NodeMatch]:
        """This match and those below it, level by level, nearest first."""
        level: list[NodeMatch] = [self]
        while level:
            yield from level
            level = [below for match in level for below in match.inputs]


class Match:
    """One place of a graph that fits a pattern.

    Args:
        root: the tree of matches.
        graph: the graph that it was found in.
        protected: names that must survive as if something else used them.
    """

    def __init__(self, root: NodeMatch, graph: Graph, protected: Collection[str] = ()) -> None:
        self.root = root
        self.graph = graph
        self.protected = protected

    @property
    def node(self) -> Node:
        """The node that the pattern's head fits."""
        return self.root.node

    def __getitem__(self, label: str) -> Node:
        """The node whose pattern has that label.

        Raises:
            UsageError: no pattern has it.
        """
        found = self._labels.get(label)
        if found is None:
            message = f"no node of the pattern {self.root.pattern} is labelled {label!r}"
            raise UsageError(message, nearest_hint(label, self._labels))
        return found

    def find(self, label: str) -> Node | None:
        """The node whose pattern has that label, or None where no pattern has it."""
        return self._labels.get(label)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every matched node once, level by level from the head; borrowed ones left out."""
        owned = (m.node for m in self.root.walk() if not m.pattern.borrowed)
        return tuple({n.name: n for n in owned}.values())

    @cached_property
    def borrowed(self) -> frozenset[str]:
        """Names of the matched nodes that stay where they are."""
        owned = {n.name for n in self.nodes}
        return frozenset(m.node.name for m in self.root.walk()) - owned

    @cached_property
    def used_outside(self) -> frozenset[str]:
        """Names of matched nodes that a node outside of the match needs, or that are protected."""
        return frozenset(n.name for n in self.nodes if n.name in self.protected or self._users(n))

    @cached_property
    def read_outside(self) -> frozenset[str]:
        """Those of ``used_outside`` of which more is needed than that they have run."""
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
        """The nodes outside of the match that a node of it is an input of."""
        users = self.graph.consumers.get(node.name, ())
        return [user for user in users if user.name not in self._names]

    @cached_property
    def _labels(self) -> Mapping[str, Node]:
        return {m.pattern.label: m.node for m in self.root.walk() if m.pattern.label}


Check = Callable[[Match], str]
"""Reason for skipping a match, or an empty string."""


class Found(Struct, frozen=True):
    """The places that fit, in execution order, and how many were left alone by reason."""

    matches: tuple[Match, ...] = ()
    skipped: Mapping[str, int] = field(default_factory=dict)


class GraphMatcher:
    """Finds patterns in one graph; no node is part of two matches of one search.

    Args:
        graph: the graph.
        protected: see ``Match``.
    """

    def __init__(self, graph: Graph, protected: Collection[str] = ()) -> None:
        self.graph = graph
        self.protected = protected

    def find(self, pattern: OpTypePattern, check: Check | None = None) -> Found:
        """All matches, looked for in the original tool's execution order.

        A place that ``check`` gives a reason for keeps its nodes free for other matches.
        """
        if pattern.op != ANY and not any(n.op in pattern.ops for n in self.graph.nodes):
            return Found()
        taken: set[str] = set()
        matches: list[Match] = []
        skipped: dict[str, int] = {}
        for node in self._order:
            root = self._match(node, pattern, taken)
            if root is None:
                continue
            match = Match(root, self.graph, self.protected)
            reason = check(match) if check is not None else ""
            if reason:
                skipped[reason] = skipped.get(reason, 0) + 1
                continue
            taken.update(n.name for n in match.nodes)
            matches.append(match)
        return Found(tuple(matches), skipped)

    @cached_property
    def _order(self) -> list[Node]:
        order = execution_order(self.graph)
        if len(order) < len(self.graph):
            # Nodes of a cycle have no order; they are looked at last, as they are stored.
            sorted_names = {n.name for n in order}
            order += [n for n in self.graph if n.name not in sorted_names]
        return order

    def _match(self, node: Node, pattern: OpTypePattern, taken: set[str]) -> NodeMatch | None:
        if not pattern.accepts(node) or node.name in taken:
            return None
        if not pattern.inputs:
            return NodeMatch(node, pattern)
        tensors = node.data_inputs
        if len(tensors) != len(pattern.inputs):
            return None
        found = []
        for ref, below in zip(tensors, pattern.inputs, strict=True):
            producer = self.graph.get(ref.node)
            match = None if producer is None else self._match(producer, below, taken)
            if match is None:
                return None
            found.append(match)
        return NodeMatch(node, pattern, tuple(found))
