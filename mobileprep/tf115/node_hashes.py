"""The hashes of nodes, by which TensorFlow 1.15 orders them when it merges duplicates.

Source: ``HashNodeDef`` of TensorFlow 1.15's graph transforms.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache, reduce
from typing import Final

from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.ir.attrs import REPEATED_KINDS, AttrValue
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.serde_attrs import attr_to_proto
from mobileprep.numerics.hashes import hash64
from mobileprep.tf115.hashing import combine, combine_rows, hash_text, hash_texts

# Up to so many bytes of constants, all of them are hashed as the original does it.
_HASHED_WHOLE: Final = 1 << 23
_LONG: Final = 1 << 12
# Texts and hashes of so many nodes are held at a time.
_AT_ONCE: Final = 1 << 13


class NodeHashes:
    """Hashes the nodes of one graph.

    Where a graph holds many bytes of constants, long ones have a quicker hash than the original's:
    only their own places in the order differ.

    Args:
        graph: the graph.
        named: the nodes whose names count.
    """

    def __init__(self, graph: Graph, named: Collection[str]) -> None:
        self._graph = graph
        self._named = named
        # By the identity of the attributes, which nodes of a kind often share.
        self._of_attrs: dict[int, tuple[int, ...]] = {}

    def one(self, node: Node) -> int:
        """The hash of a node."""
        return reduce(combine, (*map(hash_text, self._texts(node)), *self._attrs(node)))

    def many(self, nodes: Sequence[Node]) -> list[int]:
        """The hash of each of many nodes, which takes less time for all at once."""
        parts = (nodes[i : i + _AT_ONCE] for i in range(0, len(nodes), _AT_ONCE))
        return [found for part in parts for found in self._some(part)]

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
        """What of a node is hashed before its attributes."""
        name = node.name if node.name in self._named else ""
        return [node.op, name, *map(_canonical, node.inputs), node.device]

    def _attrs(self, node: Node) -> tuple[int, ...]:
        """The hash of each attribute's serialized value, by the attribute's name."""
        found = self._of_attrs.get(id(node.attrs))
        if found is None:
            found = tuple(_attr_hash(node.attrs[k], self._longest) for k in sorted(node.attrs))
            self._of_attrs[id(node.attrs)] = found
        return found

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
