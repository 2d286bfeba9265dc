"""Attributes of nodes in a few words."""

from __future__ import annotations

from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.inspection.drawing import shape_text
from mobileprep.ir.attrs import AttrValue

_LONGEST: Final = 200


def attribute_text(value: AttrValue) -> str:
    """An attribute in at most 200 characters; of a tensor what it is, not what it holds."""
    found = value.value
    if isinstance(found, DType):
        return found.short
    if value.kind == "shape":
        return shape_text(found)
    if isinstance(found, bytes):
        return found[:_LONGEST].decode("utf-8", "backslashreplace")
    text = str(found)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
