"""Convert control flow v1 conditionals to If nodes that run one of two functions.

A Merge of two opposite branches becomes an output of an If. Independent Merges with the same
predicate share the If.

Source: ``functionalize_cond.cc`` of TensorFlow's compiler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.frames import Branches, Conditions
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.op_sets import FEEDABLE, MERGES, SWITCHES
from mobileprep.graph.reachability import closure, without_dangling
from mobileprep.graph.refs import Edge, Ref, parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.raise_control_flow.region import (
    Functions,
    Raising,
    Slice,
    attributes,
    cannot_raise,
    in_order,
    malformed,
    types_of,
    upstream,
)

_DEEPEST: Final = 64

Level = tuple[int, ...]


@dataclass
class _Group:
    """Merges that become one If.

    Args:
        predicate: the tensor that selects the branch.
        around: the conditions under which it is evaluated.
        merges: each with its inputs for a false and a true predicate.
    """

    predicate: Edge
    around: Conditions
    merges: list[tuple[Node, tuple[Ref, Ref]]] = field(default_factory=list)


def raise_conditionals(
    work: Raising, functions: Functions, region: dict[str, Node], roots: Sequence[Ref]
) -> None:
    """Convert every conditional of a region.

    Args:
        region: the nodes with resolved inputs, without those that form loops.
        roots: the tensors that the region must provide.
    """
    order = in_order(region)
    if any(n.op in SWITCHES or n.op in MERGES for n in order):
        _Conditionals(work, functions, region).run(order, roots)


class _Conditionals:
    """Conditionals of one region."""

    def __init__(self, work: Raising, functions: Functions, region: dict[str, Node]) -> None:
        self._work = work
        self._functions = functions
        self._region = region
        self._branches = Branches(self._truth)
        self._groups: dict[tuple[Edge, Conditions, Level], _Group] = {}
        self._levels: dict[str, Level] = {}

    def run(self, order: Sequence[Node], roots: Sequence[Ref]) -> None:
        """Group the Merges of ordered nodes, then convert the groups, the inner ones first."""
        for node in order:
            self._branches.add(node)
            if len(self._branches.of_node(node.name)) > _DEEPEST:
                raise cannot_raise(node, f"is in more than {_DEEPEST} conditionals")
            self._levels[node.name] = self._level(node)
            if node.op in SWITCHES:
                self._decide(node)
            elif node.op in MERGES and node.name in self._work.live:
                self._sort(node)
        for ref in roots:
            if ref.node in self._region and self._branches.of(ref):
                reason = "gives its tensor in one branch alone"
                raise cannot_raise(self._region[ref.node], reason, "fetch the output of the Merge")
        for group in sorted(self._groups.values(), key=lambda g: -len(g.around)):
            self._raise(group)

    def _truth(self, predicate: Edge) -> bool | None:
        node = self._work.constant(Ref(*predicate))
        if node is None:
            return None
        value = node.attr_tensor("value")
        if value.dtype is not DType.BOOL or value.size != 1:
            raise malformed(node, "is the predicate of a branch, and not a single boolean")
        return bool(value.array().reshape(-1)[0])

    def _level(self, node: Node) -> Level:
        """Return the number of consecutive conditionals up to a node, at each depth."""
        level: Level = ()
        for ref in node.inputs:
            other = self._levels.get(ref.node, ())
            if other != level:
                level = tuple(map(max, zip_longest(level, other, fillvalue=0)))
        return level

    def _decide(self, node: Node) -> None:
        """Resolve a Switch with a constant predicate to its input."""
        if len(node.data_inputs) != 2:
            raise malformed(node, f"takes {len(node.data_inputs)} tensors, not 2")
        branch = self._branches.taken(node)
        if branch is not None:
            self._work.same[node.name, branch] = node.data_inputs[0]

    def _sort(self, merge: Node) -> None:
        """Add a Merge to its group, or replace it with its only reachable input."""
        refs = merge.data_inputs
        there = [i for i, ref in enumerate(refs) if not self._branches.never(ref)]
        if len(there) == 1:
            self._work.raised += 1
            self._work.same[merge.name, 0] = refs[there[0]]
            self._work.same[merge.name, 1] = self._number(merge, there[0])
            return
        if not there:
            return
        if len(refs) != 2:
            raise cannot_raise(merge, f"joins {len(refs)} branches, not 2")
        first, second = (self._branches.of(ref) for ref in refs)
        for predicate, value in sorted(first - second):
            around = first - {(predicate, value)}
            if around == second - {(predicate, not value)} and len(first) == len(second):
                level = self._levels[merge.name]
                level = (*level, *(0 for _ in range(len(around) + 1)))[: len(around) + 1]
                level = (*level[:-1], level[-1] + 1)
                self._levels[merge.name] = level
                key = (predicate, around, level)
                group = self._groups.setdefault(key, _Group(predicate, around))
                group.merges.append((merge, (refs[value], refs[not value])))
                return
        raise cannot_raise(merge, "does not join two branches of one condition")

    def _number(self, merge: Node, index: int) -> Ref:
        """Create a constant with the index of the input that a Merge took."""
        name = self._work.names.name(f"{merge.name}/index_{index}")
        self._work.new_nodes[name] = constant(name, Tensor.of(np.int32(index)))
        self._region[name] = self._work.new_nodes[name]
        return Ref(name)

    def _raise(self, group: _Group) -> None:
        """Create the If of a group, and redirect the outputs of its Merges to it."""
        self._work.raised += 1
        numbered = [m for m, _ in group.merges if (m.name, 1) in self._work.read]
        numbers = {
            (m.name, i): self._number(m, i) for m in numbered for i in range(len(m.data_inputs))
        }
        sides = []
        for value in (False, True):
            targets = [ways[value] for _, ways in group.merges]
            for merge, ways in group.merges:
                if merge in numbered:
                    targets.append(numbers[merge.name, merge.data_inputs.index(ways[value])])
            sides.append(self._side(group, value, targets))
        args = list(dict.fromkeys(ref for side in sides for ref in side.inputs))
        first = group.merges[0][0]
        name = self._work.names.name(first.name.rpartition("/")[0] or "cond")
        other, then = (
            self._functions.add(f"{name}_{kind}", side.nodes, args, side.results)
            for kind, side in zip(("else", "then"), sides, strict=True)
        )
        outputs = [(m.name, 0) for m, _ in group.merges] + [(m.name, 1) for m in numbered]
        values = attributes(
            Tcond=attr.dtype(DType.BOOL),
            Tin=types_of(self._work, args),
            Tout=types_of(self._work, [Ref(*tensor) for tensor in outputs]),
            then_branch=then,
            else_branch=other,
            output_shapes=attr.AttrValue("list", ()),
        )
        inputs = (self._work.resolved(Ref(*group.predicate)), *args)
        op = self._functions.op("If", (then, other))
        node = self._work.new_nodes[name] = Node(name, op, inputs, "", values)
        for index, tensor in enumerate(outputs):
            self._work.same[tensor] = Ref(name, index)
        self._region[name] = node
        self._branches.set_conditions(name, group.around)

    def _side(self, group: _Group, value: bool, targets: Sequence[Ref]) -> Slice:
        """Return the nodes that run if the predicate of a group has a value."""
        literal = (group.predicate, value)

        def inside(ref: Ref) -> Ref | None:
            if ref.node not in self._region or self._gate(ref, group.predicate):
                return None
            return ref if literal in self._branches.of_node(ref.node) else None

        def outside(ref: Ref) -> Ref:
            while (node := self._gate(ref, group.predicate)) is not None:
                ref = self._work.resolved(node.data_inputs[0])
            return ref

        return upstream(self._work, targets, inside, outside)

    def _gate(self, ref: Ref, predicate: Edge) -> Node | None:
        """Return the Switch that produces a tensor if it uses the predicate, or None."""
        node = self._region.get(ref.node)
        if node is None or self._branches.predicate(ref.node) != predicate:
            return None
        return node


def assembled(
    work: Raising,
    functions: Functions,
    outputs: Sequence[Ref],
    beside: Collection[str],
    inputs: Iterable[str],
) -> Graph:
    """Return the converted graph.

    Args:
        beside: names of nodes to keep although the outputs do not need them.
    """
    graph = work.graph
    fed = [n for n in map(graph.get, (parse_ref(name).node for name in inputs)) if n is not None]
    # Inputs are kept even if only a branch that never runs used them.
    feedable = [n.name for n in fed if n.op in FEEDABLE and _gives_constants(graph, n)]
    starts = [*(work.resolved(ref).node for ref in outputs), *beside, *feedable]
    needed = closure(starts, lambda name: _needed(work, name))
    for node in fed:
        is_inside = node.name in work.live and node.name not in needed
        if is_inside and node.op not in FEEDABLE and node.op != "Const":
            raise cannot_raise(node, "is fed within a loop or a branch", "feed what enters it")
    remaining = [n for n in graph if n.name in needed]
    ends = [_end(work, ref) for ref in dict.fromkeys(outputs) if ref.node not in needed]
    nodes = _placed(work, [*remaining, *ends])
    names = {n.name for n in nodes}
    return Graph(without_dangling(nodes, names), functions.library, graph.versions)


def _gives_constants(graph: Graph, node: Node) -> bool:
    """Return whether the default of a placeholder is constant, if it has one."""
    return all(graph[r.node].op == "Const" for r in node.data_inputs)


def _needed(work: Raising, name: str) -> list[str]:
    node = work.node(name)
    return [] if node is None else [work.resolved(r).node for r in node.data_inputs]


def _placed(work: Raising, nodes: Sequence[Node]) -> list[Node]:
    """Return nodes with resolved inputs, with new nodes before the first node that needs them."""
    done: dict[str, Node] = {}
    there = {n.name for n in nodes}
    for start in nodes:
        stack = [start]
        while stack:
            node = stack[-1]
            refs = tuple(map(work.resolved, node.inputs))
            missing = [
                work.new_nodes[r.node]
                for r in refs
                if r.node in work.new_nodes and r.node not in done
            ]
            if missing and node.name not in done:
                stack += reversed(missing)
                continue
            stack.pop()
            inputs = tuple(r for r in refs if not r.is_control or r.node in there or r.node in done)
            done.setdefault(node.name, node if inputs == node.inputs else node.with_inputs(inputs))
    return list(done.values())


def _end(work: Raising, ref: Ref) -> Node:
    """Return an Identity with the name of an output that was removed."""
    if ref.index:
        raise cannot_raise(
            work.graph[ref.node], "is fetched at a second output", "fetch the tensor itself"
        )
    source = work.resolved(ref)
    kind = {"T": attr.dtype(work.type_of(source))}
    return Node(ref.node, "Identity", (source,), "", kind)
