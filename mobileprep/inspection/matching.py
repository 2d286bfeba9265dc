"""Which nodes of two graphs are the same, whatever they are called."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from mobileprep.ir.colocation import colocated
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.op_sets import FEEDABLE
from mobileprep.ir.refs import Ref
from mobileprep.ir.tensor_digests import own_digest
from mobileprep.ir.verify import execution_order

# They hold names of nodes, or what shape inference found.
_NAMING: Final = ("_class", "_output_shapes")

# The op, the place among its inputs, and which output it takes there.
_Use: TypeAlias = tuple[str, int, int]


def matching_nodes(a: Graph, b: Graph) -> dict[str, str]:
    """The node of ``b`` for nodes of ``a``, by name; each node of ``b`` at most once.

    First come nodes that do the same on the same: equal digests of op, attributes, constants and
    all inputs. From there pairs are followed to their inputs and to what takes them, so that behind
    a changed constant all is found again. Names of nodes with one op count before that where most
    nodes of a graph have their name in the other, as names that a tool made up say nothing. What is
    left with equal digests, such as equal constants, is paired in the order of the graphs.

    Args:
        a: one graph.
        b: the other.

    Raises:
        InvalidGraphError: an input is missing, or nodes feed each other in a circle.
    """
    matching = _Matching(a, b)
    rounds = [[_digests(graph, by_name=named) for graph in (a, b)] for named in (True, False)]
    for mine, yours in rounds:
        matching.surely(mine, yours)
    if sum(_has(b, node) for node in a) * 2 > min(len(a), len(b)):
        matching.by_name()
    matching.along_edges()
    for mine, yours in rounds:
        matching.in_order(mine, yours)
    matching.along_edges(in_order=True)
    return matching.found


def _has(graph: Graph, node: Node) -> bool:
    """Whether a graph has a node of the same name and op."""
    other = graph.get(node.name)
    return other is not None and other.op == node.op


def _digests(graph: Graph, *, by_name: bool) -> dict[str, bytes]:
    """A digest for each node of what it computes.

    Args:
        by_name: whether placeholders are told apart by their names, or by type and shape.
    """
    found: dict[str, bytes] = {}
    for node in execution_order(graph, ""):
        digest = hashlib.sha256(own_digest(node.without_attrs(*_NAMING)))
        if by_name and node.op in FEEDABLE:
            digest.update(node.name.encode())
        for ref in node.data_inputs:
            # The end of a loop comes after its beginning.
            digest.update(found.get(ref.node, b"loop") + str(ref.index).encode())
        for before in sorted(found.get(r.node, b"loop") for r in node.control_inputs):
            digest.update(b"^" + before)
        found[node.name] = digest.digest()
    return found


class _Matching:
    """Pairs of nodes, which grow along the graphs' edges."""

    def __init__(self, a: Graph, b: Graph) -> None:
        self._a, self._b = a, b
        self._uses = _uses(a), _uses(b)
        self.found: dict[str, str] = {}
        self._taken: set[str] = set()
        self._fresh: deque[tuple[str, str]] = deque()
        self._mine: Mapping[str, bytes] = {}
        self._yours: Mapping[str, bytes] = {}

    def surely(self, mine: Mapping[str, bytes], yours: Mapping[str, bytes]) -> None:
        """Pair nodes whose digest no other has, then those of equal digest and name."""
        self._mine, self._yours = mine, yours
        groups = _groups(mine), _groups(yours)
        for digest, names in groups[0].items():
            others = groups[1].get(digest, [])
            if len(names) == len(others) == 1:
                self._pair(names[0], others[0])
        self._spread(exact=True)
        for name, digest in mine.items():
            if yours.get(name) == digest:
                self._pair(name, name)
        self._spread(exact=True)

    def in_order(self, mine: Mapping[str, bytes], yours: Mapping[str, bytes]) -> None:
        """Pair what is left of equal digests as it comes."""
        self._mine, self._yours = mine, yours
        groups = _groups({n: d for n, d in yours.items() if n not in self._taken})
        others = {digest: iter(names) for digest, names in groups.items()}
        for name, digest in mine.items():
            if name in self.found:
                continue
            left = (n for n in others.get(digest, ()) if n not in self._taken)
            other = next(left, None)
            if other is not None:
                self._pair(name, other)
                self._spread(exact=True)

    def by_name(self) -> None:
        """Pair what is left by name and op."""
        for node in self._a:
            if _has(self._b, node):
                self._pair(node.name, node.name)

    def along_edges(self, *, in_order: bool = False) -> None:
        """Pair what stands at the same place between pairs: of one op, and alone there.

        Args:
            in_order: whether several at one place are paired as they come.
        """
        self._fresh.extend(self.found.items())
        self._spread(exact=False, in_order=in_order)

    def _pair(self, name: str, other: str) -> None:
        if name not in self.found and other not in self._taken:
            self.found[name] = other
            self._taken.add(other)
            self._fresh.append((name, other))

    def _spread(self, *, exact: bool, in_order: bool = False) -> None:
        """Follow pairs to their inputs, and where digests need not be equal to their users."""
        while self._fresh:
            name, other = self._fresh.popleft()
            mine, yours = self._a[name].inputs, self._b[other].inputs
            for ref, its in zip(mine, yours, strict=False):
                self._try(ref.node, its.node, exact=exact)
            if not exact:
                self._follow(name, other, in_order=in_order)

    def _follow(self, name: str, other: str, *, in_order: bool) -> None:
        mine, theirs = self._uses
        yours = _users(theirs.get(other, ()), self._taken)
        for use, users in _users(mine.get(name, ()), self.found).items():
            there = yours.get(use, [])
            if in_order or len(users) == len(there) == 1:
                for user, its in zip(users, there, strict=False):
                    self._try(user, its, exact=False)

    def _try(self, name: str, other: str, *, exact: bool) -> None:
        node, its = self._a.get(name), self._b.get(other)
        if node is None or its is None or node.op != its.op:
            return
        if not exact or self._mine.get(name) == self._yours.get(other):
            self._pair(name, other)


def _groups(digests: Mapping[str, bytes]) -> dict[bytes, list[str]]:
    groups: dict[bytes, list[str]] = {}
    for name, digest in digests.items():
        groups.setdefault(digest, []).append(name)
    return groups


def _uses(graph: Graph) -> dict[str, list[tuple[str, _Use]]]:
    """For each node those that take it, each with how, in the graph's order."""
    found: dict[str, list[tuple[str, _Use]]] = {}
    for user in graph:
        for slot, ref in enumerate(user.inputs):
            found.setdefault(ref.node, []).append((user.name, (user.op, slot, ref.index)))
    return found


def _users(uses: Iterable[tuple[str, _Use]], done: Container[str]) -> dict[_Use, list[str]]:
    """The users that are not matched, by how they use."""
    found: dict[_Use, list[str]] = {}
    for user, use in uses:
        if user not in done:
            found.setdefault(use, []).append(user)
    return found


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """A graph with other names for some nodes, and wherever they are named."""
    return graph.with_nodes(_renamed(node, names) for node in graph)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    inputs = tuple(_ref(ref, names) for ref in node.inputs)
    moved = replace(node, name=names.get(node.name, node.name), inputs=inputs)
    return colocated(moved, lambda name: names.get(name, name))


def _ref(ref: Ref, names: Mapping[str, str]) -> Ref:
    return ref.renamed(names[ref.node]) if ref.node in names else ref
