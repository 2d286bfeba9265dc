"""Signatures of ops and functions: arguments, attributes, and defaults."""

from __future__ import annotations

from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import AttrValue


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
