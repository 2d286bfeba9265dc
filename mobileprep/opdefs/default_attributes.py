"""The attributes that nodes have without naming them."""

from __future__ import annotations

from collections.abc import Mapping

from mobileprep.ir.attrs import AttrValue
from mobileprep.ir.graph import Library
from mobileprep.opdefs.definitions import NEWEST, TF115, op_def


def default_attrs(op: str, library: Library) -> Mapping[str, AttrValue] | None:
    """The attributes that an op or function has defaults for, or None where nobody knows it.

    The definitions are those of TensorFlow 1.15, so that it can load what is made with them; for
    ops that it does not have, those of the newest release.
    """
    if op in library.functions:
        definition = library.functions[op].signature
    else:
        found = op_def(op, TF115) or op_def(op, NEWEST)
        if found is None:
            return None
        definition = found
    return {a.name: a.default for a in definition.attrs if a.default is not None}
