"""Keys that are equal for nodes that differ only in their names."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any, Final

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import REPEATED_KINDS, AttrValue, FuncRef
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Tensor

_DIGEST_SIZE: Final = 16


def attrs_key(node: Node) -> Hashable:
    """Return a hashable key that is equal for equal attributes.

    Like in the original, a constant with leading values is not a duplicate of one stored as bytes.
    """
    return tuple((name, _value_key(node.attrs[name])) for name in sorted(node.attrs))


def _value_key(value: AttrValue) -> Hashable:
    return value if value.kind in REPEATED_KINDS else (value.kind, _key(value.value))


def _key(value: Any) -> Hashable:  # noqa: ANN401 - any attribute value
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
        # A single computed number is written as a value.
        return *head, "values", bytes(tensor.raw())
    return *head, hashlib.blake2b(tensor.raw(), digest_size=_DIGEST_SIZE).digest()


def _string_elements(tensor: Tensor) -> Hashable:
    if tensor.content is not None:
        return bytes(tensor.content)
    return tuple(tensor.values) if tensor.values is not None else ()
