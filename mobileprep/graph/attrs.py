"""Attribute values of nodes, with the kind names of op definitions, and signatures of ops."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, field

from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import Tensor

TensorShape = tuple[int, ...] | None
"""Dimensions, with -1 for an unknown size; None for an unknown rank."""


class FuncRef(Struct, frozen=True):
    """A function in an attribute value, with the attributes that bind its signature."""

    name: str
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)


class AttrValue(Struct, frozen=True):
    """An attribute value.

    Args:
        kind: "string", "int", "float", "bool", "type", "shape", "tensor", "func", "placeholder",
            "list(KIND)", "list" for an empty list, or "" for no value.
        value: bytes, int, float, bool, DType, TensorShape, Tensor, FuncRef, str, or a tuple.
    """

    kind: str
    value: Any


Attrs = Mapping[str, AttrValue]
"""Attributes by name. Never modified, because similar nodes can share a mapping."""

REPEATED_KINDS: Final = frozenset({"string", "int", "bool", "type", "list(int)", "list(type)"})
"""Kinds whose equal values are interchangeable (unlike 0.0 and -0.0) and often repeat."""


def string(value: str | bytes) -> AttrValue:
    """Return a string attribute; str is encoded as UTF-8."""
    return AttrValue("string", value.encode() if isinstance(value, str) else value)


def integer(value: int) -> AttrValue:
    """Return an int attribute."""
    return AttrValue("int", value)


def floating(value: float) -> AttrValue:
    """Return a float attribute, which is serialized in single precision."""
    return AttrValue("float", value)


def boolean(value: bool) -> AttrValue:
    """Return a bool attribute."""
    return AttrValue("bool", value)


@lru_cache(maxsize=1 << 10, typed=True)
def dtype(value: DType) -> AttrValue:
    """Return a type attribute; cached, because nearly every node has one."""
    return AttrValue("type", value)


def shape(value: TensorShape) -> AttrValue:
    """Return a shape attribute."""
    return AttrValue("shape", value)


def tensor(value: Tensor) -> AttrValue:
    """Return a tensor attribute."""
    return AttrValue("tensor", value)


def integers(*values: int) -> AttrValue:
    """Return a list(int) attribute."""
    return AttrValue("list(int)", tuple(values))


class ArgDef(Struct, frozen=True):
    """An input or output argument.

    A list with equal types has ``number_attr``; a list with different types has ``type_list_attr``.
    """

    name: str
    dtype: DType = DType.INVALID
    type_attr: str = ""
    number_attr: str = ""
    type_list_attr: str = ""
    is_ref: bool = False
    handle_data: tuple[bytes, ...] = ()


class AttrDef(Struct, frozen=True):
    """An attribute: its kind, and its default if it has one."""

    name: str
    kind: str
    default: AttrValue | None = None
    allowed: AttrValue | None = None
    minimum: int | None = None


class OpDef(Struct, frozen=True):
    """The signature of an op or a function."""

    name: str
    inputs: tuple[ArgDef, ...] = ()
    outputs: tuple[ArgDef, ...] = ()
    attrs: tuple[AttrDef, ...] = ()
    control_outputs: tuple[str, ...] = ()
    is_stateful: bool = False
    is_commutative: bool = False
    is_aggregate: bool = False
    allows_uninitialized_input: bool = False
    deprecated_at: int = 0
    """The graph version from which the op is rejected; 0 for never."""

    def attr(self, name: str) -> AttrDef | None:
        """Return the attribute of that name, or None."""
        return next((a for a in self.attrs if a.name == name), None)
