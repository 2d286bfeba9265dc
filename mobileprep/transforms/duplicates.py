"""Merge equal nodes and equal constants."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import REPEATED_KINDS, AttrValue, FuncRef
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import signature_of
from mobileprep.graph.reachability import colocated
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, Result, Transform, transform
from mobileprep.transforms.tf115 import NodeHashes

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

    summary = "Merges nodes that differ only in their names."
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
        self._attrs: dict[int, Hashable] = {}
        self._key: dict[str, Hashable] = {}
        self._equal: dict[Hashable, dict[str, None]] = defaultdict(dict)
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
        hashes = map(self._hashes.of, self._node.values())
        order = sorted(zip(hashes, map(self._place.__getitem__, self._node), nodes, strict=True))
        return [node for _, _, node in order]

    def _rekeyed(self, name: str) -> Hashable:
        node = self._node[name]
        attrs = self._attrs.get(id(node.attrs))
        if attrs is None:
            attrs = self._attrs[id(node.attrs)] = attrs_key(node)
        own_name = name if name in self._protected else ""
        key = (attrs, node.op, own_name, node.device, node.inputs)
        if name in self._key:
            del self._equal[self._key[name]][name]
        self._key[name] = key
        self._equal[key][name] = None
        return key

    def _merge(self, keys: Iterable[Hashable], first: bool) -> list[str]:
        merged = []
        for key in keys:
            group = self._equal[key]
            if len(group) < 2:
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
        return self._hashes.of(self._before.get(name) or self._node[name]), place

    def _not_mergeable(self, node: Node) -> str:
        if node.op in _PLACEHOLDERS:
            return "it is fed by itself"
        definition = signature_of(node, self._graph.library)
        if definition is None:
            return "its op is unknown, so it may have state"
        return "it has a state of its own" if definition.is_stateful else ""


_DIGEST_SIZE: Final = 16


def attrs_key(node: Node) -> Hashable:
    """Return a hashable key that is equal for equal attributes.

    Like in the original, a constant with leading values is not a duplicate of one stored as bytes.
    """
    return tuple((name, _value_key(node.attrs[name])) for name in sorted(node.attrs))


def _value_key(value: AttrValue) -> Hashable:
    return value if value.kind in REPEATED_KINDS else (value.kind, _plain_key(value.value))


def _plain_key(value: Any) -> Hashable:  # noqa: ANN401 - any attribute value
    if isinstance(value, Tensor):
        return _tensor_key(value)
    if isinstance(value, FuncRef):
        return value.name, tuple((k, _value_key(value.attrs[k])) for k in sorted(value.attrs))
    if isinstance(value, tuple):
        return tuple(_plain_key(item) for item in value)
    plain: Hashable = value
    return plain


def _tensor_key(tensor: Tensor) -> Hashable:
    head = (tensor.dtype, tensor.shape)
    if tensor.opaque:
        return *head, tensor.opaque
    if tensor.dtype is DType.STRING:
        return *head, _string_elements(tensor)
    if tensor.values is not None:
        return *head, "values", tensor.values.tobytes()
    if tensor.content is None and tensor.size <= 1:
        # A single computed number is written as a value.
        return *head, "values", bytes(tensor.raw())
    return *head, hashlib.blake2b(tensor.raw(), digest_size=_DIGEST_SIZE).digest()


def _string_elements(tensor: Tensor) -> Hashable:
    if tensor.content is not None:
        return bytes(tensor.content)
    return tuple(tensor.values) if tensor.values is not None else ()


@transform("share_constants")
class ShareConstants(Transform, frozen=True):
    """Merge constants with equal type, shape, and elements.

    How the elements are stored does not matter, nor do attributes besides type and value. Constants
    with different devices or control inputs are not merged.
    """

    summary = "Merges constants with the same content."

    def apply(self, graph: Graph, context: Context) -> Result:
        """Merge the constants except inputs and outputs of the graph."""
        protected = context.protected
        shared = {
            other: survivor
            for equal in _equal_constants(graph)
            for other, survivor in _pairs(equal, protected)
        }
        if not shared:
            return Result(graph)
        nodes = [_moved(n, shared) for n in graph if n.name not in shared]
        return Result(graph.with_nodes(nodes), len(shared))


def _equal_constants(graph: Graph) -> Iterator[list[str]]:
    """Yield the names of each group of equal constants."""
    alike: dict[Hashable, list[Node]] = defaultdict(list)
    for node in graph:
        if node.op == "Const" and "value" in node.attrs:
            value = node.attr_tensor("value")
            if value.dtype is DType.STRING or value.dtype.numpy is not None:
                key = (value.dtype, value.shape, node.device, frozenset(node.inputs))
                alike[key].append(node)
    for nodes in alike.values():
        equal: dict[bytes, list[str]] = defaultdict(list)
        for node in nodes if len(nodes) > 1 else ():
            equal[_digest(node.attr_tensor("value"))].append(node.name)
        yield from (names for names in equal.values() if len(names) > 1)


def _pairs(equal: list[str], protected: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each removed constant with its replacement, a protected one if there is one."""
    survivor = next((name for name in equal if name in protected), equal[0])
    yield from ((name, survivor) for name in equal if name != survivor and name not in protected)


def _moved(node: Node, shared: dict[str, str]) -> Node:
    if any(r.node in shared for r in node.inputs):
        inputs = tuple(r.renamed(shared.get(r.node, r.node)) for r in node.inputs)
        node = replace(node, inputs=inputs)
    return colocated(node, lambda name: shared.get(name, name))


def _digest(tensor: Tensor) -> bytes:
    """Return a digest that is equal for equal elements, regardless of their storage."""
    if tensor.dtype is DType.STRING:
        lengths = b"".join(len(x).to_bytes(8, "little") for x in tensor.array().ravel())
        elements = b"".join(tensor.array().ravel())
        return hashlib.blake2b(lengths + elements, digest_size=_DIGEST_SIZE).digest()
    return hashlib.blake2b(_leading(tensor), digest_size=_DIGEST_SIZE).digest()


def _leading(tensor: Tensor) -> bytes | memoryview:
    """Return the bytes of the elements without trailing repetitions of the last one.

    A tensor filled with one number is not expanded for this.
    """
    width = tensor.dtype.itemsize
    data = tensor.raw() if tensor.values is None else tensor.values[: tensor.size].tobytes()
    if not data:
        return bytes(width if tensor.size else 0)
    elements = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
    if len(elements) == 1 or (elements[-1] != elements[-2]).any():
        return data
    others = np.flatnonzero((elements != elements[-1]).any(axis=1))
    return elements[: others[-1] + 2 if len(others) else 1].tobytes()
