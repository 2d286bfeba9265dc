"""Hashes by which TensorFlow 1.15 orders nodes when it merges duplicates.

Source: ``HashNodeDef`` of TensorFlow 1.15's graph transforms.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, reduce
from typing import Final

import numpy as np

from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.graph.attrs import REPEATED_KINDS, AttrValue
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.node_serde import attr_to_proto
from mobileprep.graph.refs import Ref
from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.hashes import hash64, hash64_many

# Up to this total size of constants in bytes, all of them are hashed like in the original.
_HASHED_WHOLE: Final = 1 << 23
_LONG: Final = 1 << 12
# Number of nodes whose strings and hashes are in memory at a time.
_AT_ONCE: Final = 1 << 13


class NodeHashes:
    """Hashes of the nodes of one graph.

    If a graph has many bytes of constants, long ones have a faster hash than the original's, so
    only their own positions in the order differ.

    Args:
        graph: the graph.
        named: the nodes whose names are hashed.
    """

    def __init__(self, graph: Graph, named: Collection[str]) -> None:
        self._graph = graph
        self._named = named
        # By the identity of the attributes, which similar nodes often share.
        self._of_attrs: dict[int, tuple[int, ...]] = {}

    def one(self, node: Node) -> int:
        """Return the hash of a node."""
        return reduce(combine, (*map(hash_text, self._texts(node)), *self._attrs(node)))

    def many(self, nodes: Sequence[Node]) -> list[int]:
        """Return the hashes of many nodes, which is faster than one by one."""
        parts = (nodes[i : i + _AT_ONCE] for i in range(0, len(nodes), _AT_ONCE))
        return [value for part in parts for value in self._some(part)]

    def _some(self, nodes: Sequence[Node]) -> list[int]:
        texts = [self._texts(node) for node in nodes]
        hashes = hash_texts({text for of_node in texts for text in of_node})
        return combine_rows(
            [
                [*map(hashes.__getitem__, of_node), *self._attrs(node)]
                for of_node, node in zip(texts, nodes, strict=True)
            ]
        )

    def _texts(self, node: Node) -> list[str]:
        """Return the strings of a node that are hashed before its attributes."""
        name = node.name if node.name in self._named else ""
        return [node.op, name, *map(_canonical, node.inputs), node.device]

    def _attrs(self, node: Node) -> tuple[int, ...]:
        """Return the hashes of the attributes' serialized values, sorted by attribute name."""
        hashes = self._of_attrs.get(id(node.attrs))
        if hashes is None:
            hashes = tuple(_attr_hash(node.attrs[k], self._longest) for k in sorted(node.attrs))
            self._of_attrs[id(node.attrs)] = hashes
        return hashes

    @cached_property
    def _longest(self) -> int:
        constants = [n.attr_tensor("value") for n in self._graph if n.op == "Const"]
        total = sum(t.size * t.dtype.itemsize for t in constants)
        return _HASHED_WHOLE if total <= _HASHED_WHOLE else _LONG


def _canonical(ref: Ref) -> str:
    text = str(ref)
    return text if ref.index > 0 or ref.explicit else f"{text}:0"


def _attr_hash(value: AttrValue, longest: int) -> int:
    if value.kind == "tensor" and value.value.dtype.itemsize and value.value.nbytes > longest:
        return hash64(zlib.crc32(value.value.raw()).to_bytes(4, "little"))
    return _repeated_hash(value) if value.kind in REPEATED_KINDS else _serialized_hash(value)


@lru_cache(maxsize=1 << 12)
def _repeated_hash(value: AttrValue) -> int:
    return _serialized_hash(value)


def _serialized_hash(value: AttrValue) -> int:
    proto = pb.AttrValue()
    attr_to_proto(value, proto)
    return hash64(proto.SerializeToString(deterministic=True))


_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7800
# For fewer rows of the same length, numpy is slower than Python.
_FEW: Final = 16


@lru_cache(maxsize=1 << 17)
def hash_text(text: str) -> int:
    """Return the hash of a name, an op, or a device, which often repeat in a graph."""
    return hash64(text.encode())


def hash_texts(texts: Iterable[str]) -> Mapping[str, int]:
    """Return the hashes of many strings."""
    distinct = list(dict.fromkeys(texts))
    hashes = hash64_many([text.encode() for text in distinct])
    return dict(zip(distinct, hashes, strict=True))


def combine_rows(rows: Sequence[Sequence[int]]) -> list[int]:
    """Combine each row of at least one hash into one, from left to right."""
    groups: dict[int, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        groups[len(row)].append(i)
    combined = [0] * len(rows)
    for places in groups.values():
        many = [rows[i] for i in places]
        results = _combined(many) if len(many) >= _FEW else (reduce(combine, row) for row in many)
        for i, result in zip(places, results, strict=True):
            combined[i] = result
    return combined


def combine(first: int, second: int) -> int:
    """Combine two hashes into one. Source: ``Hash64Combine`` of TensorFlow."""
    return first ^ (second + _GOLDEN + (first << 10 & _MASK) + (first >> 4) & _MASK)


def _combined(rows: Sequence[Sequence[int]]) -> list[int]:
    """Combine the hashes of each row; all rows have the same length."""
    columns: Array = np.array(rows, np.uint64).T
    state = columns[0]
    for column in columns[1:]:
        state = state ^ (
            column + np.uint64(_GOLDEN) + (state << np.uint64(10)) + (state >> np.uint64(4))
        )
    combined: list[int] = state.tolist()
    return combined


class SerialNames:
    """Serial numbers across all steps of a chain, like those of a 1.15 process."""

    def __init__(self) -> None:
        self._count = 0

    def constant(self, node: str, number: int, used_names: Container[str] = ()) -> str:
        """Return the name of the next constant.

        Args:
            node: the node whose output the constant replaces.
            number: the index of the constant within one folding.
            used_names: the names of nodes, which 1.15 would reuse.
        """
        while True:
            name = f"{node}/_{number}__cf__{self._count}"
            self._count += 1
            if name not in used_names:
                return name
