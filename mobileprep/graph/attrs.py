"""Attribute values of nodes, each with the kind that op definitions name it by."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, field

from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import Tensor

TensorShape = tuple[int, ...] | None
"""Dimensions, -1 where unknown; None where even their number is unknown."""


class FuncRef(Struct, frozen=True):
    """A function named by an attribute, with the attributes that bind its signature."""

    name: str
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)


class AttrValue(Struct, frozen=True):
    """One attribute.

    Args:
        kind: "string", "int", "float", "bool", "type", "shape", "tensor", "func",
            "placeholder", "list(KIND)", "list" for an empty list, "" for no value at all.
        value: bytes, int, float, bool, DType, TensorShape, Tensor, FuncRef, str, or a tuple.
    """

    kind: str
    value: Any


Attrs = Mapping[str, AttrValue]
"""Attributes by name; nodes of a kind may share one such mapping, so it is never changed."""

REPEATED_KINDS: Final = frozenset({"string", "int", "bool", "type", "list(int)", "list(type)"})
"""Kinds whose values are equal for equal hashes, and repeat a lot in a graph."""


def string(value: str | bytes) -> AttrValue:
    """A string attribute; text is stored as UTF-8."""
    return AttrValue("string", value.encode() if isinstance(value, str) else value)


def integer(value: int) -> AttrValue:
    """An int attribute."""
    return AttrValue("int", value)


def floating(value: float) -> AttrValue:
    """A float attribute; it is written in single precision."""
    return AttrValue("float", value)


def boolean(value: bool) -> AttrValue:
    """A bool attribute."""
    return AttrValue("bool", value)


@lru_cache(maxsize=1 << 10, typed=True)
def dtype(value: DType) -> AttrValue:
    """A type attribute; one for each type, as nearly every node of a graph has some."""
    return AttrValue("type", value)


def shape(value: TensorShape) -> AttrValue:
    """A shape attribute."""
    return AttrValue("shape", value)


def tensor(value: Tensor) -> AttrValue:
    """A tensor attribute."""
    return AttrValue("tensor", value)


def integers(*values: int) -> AttrValue:
    """A list(int) attribute."""
    return AttrValue("list(int)", tuple(values))
