"""Merge nodes that differ only in their names."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable
from typing import Final

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import signature_of
from mobileprep.graph.reachability import colocated
from mobileprep.graph.refs import Ref
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.merge_duplicate_nodes.keys import attrs_key
from mobileprep.transforms.tf115.node_hashes import NodeHashes

_STATEFUL: Final = "it has a state of its own"
_PLACEHOLDER: Final = "it is fed by itself"
_UNKNOWN: Final = "its op is unknown, so it may have state"
_PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})


@transform("merge_duplicate_nodes")
class MergeDuplicateNodes(Transform, frozen=True):
    """Merge nodes with equal ops, inputs, devices, and attributes.

    Merging repeats until all duplicates are merged, because nodes become equal when their inputs
    are merged. The first node in stored order is kept. The original sorts the nodes by a hash after
    every round, so after the first round it keeps the node with the smallest hash. ``tf115``
    reproduces this, except for the hashes of long constants if a graph has many of them.

    Source: ``merge_duplicate_nodes`` of TensorFlow 1.15's graph transforms.
    """

    summary = "Merges nodes that differ in nothing but their names."
    of_graph_transform_tool = True

    def apply(self, graph: Graph, context: Context) -> Result:
        """Merge all duplicates except inputs and outputs of the graph."""
        merging = _Merging(graph, context)
        merging.run()
        if not merging.survivor and not context.tf115:
            return Result(graph, skipped=merging.skipped())
        merged = len(merging.survivor)
        return Result(graph.with_nodes(merging.nodes()), merged, merging.skipped())


class _Merging:
    """Rounds of merging; each only considers nodes whose inputs changed in the previous round."""

    def __init__(self, graph: Graph, context: Context) -> None:
        self._graph = graph
        self._protected = context.protected
        # 1.15 hashes only the names of these, not names with an index such as "node:1".
        named = frozenset((*context.inputs, *context.outputs))
        self._hashes = NodeHashes(graph, named) if context.tf115 else None
        self._node = dict(graph.by_name)
        # Versions of nodes before the last round, if they changed.
        self._before: dict[str, Node] = {}
        self._place = {name: i for i, name in enumerate(self._node)}
        # By the identity of the attributes, which similar nodes often share.
        self._attrs: dict[int, int] = {}
        # Keys are replaced with numbers, which hash faster.
        self._numbers: dict[Hashable, int] = {}
        self._key: dict[str, int] = {}
        # By key: the only node with that key, which is the usual case, or all nodes that share it.
        self._single: dict[int, str] = {}
        self._equal: dict[int, dict[str, None]] = {}
        # Consumers of merged nodes, by the node that replaced them.
        self._taken_over: dict[str, list[str]] = defaultdict(list)
        self.survivor: dict[str, str] = {}

    def run(self) -> None:
        """Merge until no two nodes are equal."""
        changed: Iterable[str] = list(self._node)
        first = True
        while changed:
            merged = self._merge(dict.fromkeys(self._rekeyed(name) for name in changed), first)
            changed = self._redirect(merged)
            first = False

    def skipped(self) -> Counter[str]:
        """Count duplicates that were not merged, by reason."""
        counts: Counter[str] = Counter()
        for group in self._equal.values():
            if len(group) > 1:
                counts[self._not_mergeable(self._node[next(iter(group))])] += len(group) - 1
        return counts

    def nodes(self) -> list[Node]:
        """Return the remaining nodes, in stored order or in that of the original's hashes."""
        moved = self.survivor
        nodes = [colocated(n, lambda name: moved.get(name, name)) for n in self._node.values()]
        if self._hashes is None:
            return nodes
        hashes = self._hashes.many(tuple(self._node.values()))
        order = sorted(zip(hashes, map(self._place.__getitem__, self._node), nodes, strict=True))
        return [node for _, _, node in order]

    def _rekeyed(self, name: str) -> int:
        node = self._node[name]
        attrs = self._attrs.get(id(node.attrs))
        if attrs is None:
            attrs = self._attrs[id(node.attrs)] = self._number(attrs_key(node))
        own_name = name if name in self._protected else ""
        # Strings hash faster than references.
        inputs = (r if r.index or r.output else r.node for r in node.inputs)
        key = self._number((attrs, node.op, own_name, node.device, *inputs))
        self._enter(name, key)
        return key

    def _enter(self, name: str, key: int) -> None:
        old = self._key.get(name)
        if old is not None and self._single.pop(old, None) is None:
            del self._equal[old][name]
        self._key[name] = key
        if key in self._equal:
            self._equal[key][name] = None
        elif key in self._single:
            self._equal[key] = {self._single.pop(key): None, name: None}
        else:
            self._single[key] = name

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _merge(self, keys: Iterable[int], first: bool) -> list[str]:
        merged = []
        for key in keys:
            group = self._equal.get(key)
            if group is None or len(group) < 2:
                continue
            in_order = sorted(group, key=self._place.__getitem__ if first else self._rank)
            if self._not_mergeable(self._node[in_order[0]]):
                self._keep_order(in_order)
                continue
            survivor, *others = in_order
            for name in others:
                self.survivor[name] = survivor
                del group[name]
            merged += others
        return merged

    def _keep_order(self, names: list[str]) -> None:
        """Assign the given order to nodes with equal hashes."""
        places = sorted(self._place[name] for name in names)
        self._place.update(zip(names, places, strict=True))

    def _redirect(self, merged: Iterable[str]) -> list[str]:
        """Redirect the consumers of merged nodes to the survivors, and return their names."""
        consumers: dict[str, None] = {}
        for name in merged:
            of_name = self._consumers_of(name)
            consumers.update(dict.fromkeys(of_name))
            if of_name:
                self._taken_over[self.survivor[name]] += of_name
        for name in merged:
            del self._node[name]
        self._before = {}
        changed = [name for name in consumers if name in self._node]
        for name in changed:
            node = self._node[name]
            self._before[name] = node
            self._node[name] = self._redirected(node)
        return changed

    def _consumers_of(self, name: str) -> list[str]:
        """Return the current consumers of a node."""
        own = [n.name for n in self._graph.consumers.get(name, ())]
        return own + self._taken_over.pop(name, [])

    def _redirected(self, node: Node) -> Node:
        tensors = [self._survivor_of(r) for r in node.data_inputs]
        controls = [self._survivor_of(r) for r in node.control_inputs]
        if self._hashes is None:
            # The original duplicates a control input when two of its nodes are merged.
            controls = list(dict.fromkeys(controls))
        return node.with_inputs((*tensors, *controls))

    def _survivor_of(self, ref: Ref) -> Ref:
        survivor = self.survivor.get(ref.node)
        return ref if survivor is None else ref.renamed(survivor)

    def _rank(self, name: str) -> tuple[int, int]:
        """Return a node's sort key after a round: its hash, then its stored position."""
        place = self._place[name]
        if self._hashes is None:
            return place, place
        return self._hashes.one(self._before.get(name) or self._node[name]), place

    def _not_mergeable(self, node: Node) -> str:
        if node.op in _PLACEHOLDERS:
            return _PLACEHOLDER
        definition = signature_of(node, self._graph.library)
        if definition is None:
            return _UNKNOWN
        return _STATEFUL if definition.is_stateful else ""
