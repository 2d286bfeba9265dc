"""What a node is apart from its name: a key to find duplicates by, and the original's hash."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Hashable, Sequence
from functools import lru_cache, reduce
from typing import Any, Final

from mobileprep.formats.dtypes import DType
from mobileprep.formats.protos import graph_pb2 as pb
from mobileprep.ir.attrs import AttrValue, FuncRef
from mobileprep.ir.node import Node
from mobileprep.ir.refs import Ref
from mobileprep.ir.serde_attrs import attr_to_proto
from mobileprep.ir.tensor import Tensor
from mobileprep.numerics.hash64 import hash64
from mobileprep.tf115.node_hashes import combine, combine_rows, hash_text, hash_texts

_DIGEST_SIZE: Final = 16
# Kinds whose values are equal for equal hashes, and repeat a lot.
_PLAIN: Final = frozenset({"string", "int", "bool", "type", "list(int)", "list(type)"})


def attrs_key(node: Node) -> Hashable:
    """The node's attributes as something that is equal for equal attributes.

    A constant that is written as leading values is no duplicate of one written as bytes, as the
    original has it.
    """
    return tuple((name, _value_key(node.attrs[name])) for name in sorted(node.attrs))


def attr_hashes(node: Node, longest: int) -> tuple[int, ...]:
    """The original's hash of each attribute's serialized value, by the attribute's name.

    Args:
        node: the node.
        longest: constants of more bytes have a hash of their own, which is quickly made.
    """
    return tuple(_attr_hash(node.attrs[name], longest) for name in sorted(node.attrs))


def node_hash(node: Node, name: str, attrs: tuple[int, ...]) -> int:
    """The original's hash of a node.

    Args:
        node: the node.
        name: its name, or an empty text where the name does not matter.
        attrs: its ``attr_hashes``.

    Source: ``HashNodeDef`` of TensorFlow 1.15's graph transforms.
    """
    return reduce(combine, (*map(hash_text, _texts(node, name)), *attrs))


def node_hashes(
    nodes: Sequence[Node], names: Sequence[str], attrs: Sequence[tuple[int, ...]]
) -> list[int]:
    """The ``node_hash`` of each of many nodes, which takes less time for all at once."""
    texts = [_texts(node, name) for node, name in zip(nodes, names, strict=True)]
    hashes = hash_texts({text for of_node in texts for text in of_node})
    return combine_rows(
        [
            [*map(hashes.__getitem__, of_node), *of_attrs]
            for of_node, of_attrs in zip(texts, attrs, strict=True)
        ]
    )


def _texts(node: Node, name: str) -> list[str]:
    """What of a node is hashed before its attributes."""
    return [node.op, name, *map(_canonical, node.inputs), node.device]


def _canonical(ref: Ref) -> str:
    text = str(ref)
    return text if ref.index > 0 or ref.explicit else f"{text}:0"


def _attr_hash(value: AttrValue, longest: int) -> int:
    if value.kind == "tensor" and value.value.dtype.itemsize and value.value.nbytes > longest:
        return hash64(zlib.crc32(value.value.raw()).to_bytes(4, "little"))
    return _plain_hash(value) if value.kind in _PLAIN else _serialized_hash(value)


@lru_cache(maxsize=1 << 12)
def _plain_hash(value: AttrValue) -> int:
    return _serialized_hash(value)


def _serialized_hash(value: AttrValue) -> int:
    proto = pb.AttrValue()
    attr_to_proto(value, proto)
    return hash64(proto.SerializeToString(deterministic=True))


def _value_key(value: AttrValue) -> Hashable:
    return value if value.kind in _PLAIN else (value.kind, _key(value.value))


def _key(value: Any) -> Hashable:  # noqa: ANN401 - whatever an attribute holds
    if isinstance(value, Tensor):
        return _tensor_key(value)
    if isinstance(value, FuncRef):
        return value.name, tuple((k, _value_key(value.attrs[k])) for k in sorted(value.attrs))
    if isinstance(value, tuple):
        return tuple(_key(item) for item in value)
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
        # A single number that was worked out is written as a value.
        return *head, "values", bytes(tensor.raw())
    return *head, hashlib.blake2b(tensor.raw(), digest_size=_DIGEST_SIZE).digest()


def _string_elements(tensor: Tensor) -> Hashable:
    if tensor.content is not None:
        return bytes(tensor.content)
    return tuple(tensor.values) if tensor.values is not None else ()
