"""Which element types LiteRT's operators take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import CannotExpressError

NAMES: Final = {
    DType.FLOAT: "FLOAT32",
    DType.HALF: "FLOAT16",
    DType.INT32: "INT32",
    DType.UINT8: "UINT8",
    DType.INT64: "INT64",
    DType.STRING: "STRING",
    DType.BOOL: "BOOL",
    DType.INT16: "INT16",
    DType.COMPLEX64: "COMPLEX64",
    DType.INT8: "INT8",
    DType.DOUBLE: "FLOAT64",
    DType.COMPLEX128: "COMPLEX128",
    DType.UINT64: "UINT64",
    DType.RESOURCE: "RESOURCE",
    DType.VARIANT: "VARIANT",
    DType.UINT32: "UINT32",
    DType.UINT16: "UINT16",
    DType.BFLOAT16: "BFLOAT16",
}
"""The format's names of element types; it has no quantized types of TensorFlow's."""

FLOATS: Final = frozenset({DType.FLOAT})
NUMBERS: Final = frozenset({DType.FLOAT, DType.INT32})
LONG_NUMBERS: Final = NUMBERS | {DType.INT64}


def need(node: Node, values: Sequence[Value], allowed: Iterable[DType]) -> None:
    """Refuse inputs of types that LiteRT's operator does not take.

    Raises:
        CannotExpressError: naming the type.
    """
    known = frozenset(allowed)
    for value in values:
        if value.dtype not in known:
            names = ", ".join(kind.short for kind in sorted(known))
            reason = f"LiteRT computes it for {names}, not for {value.dtype.short}"
            raise CannotExpressError(reason, "cast its inputs")


def need_float(node: Node, values: Sequence[Value]) -> None:
    """Refuse inputs that are no float32; see ``need``."""
    need(node, values, FLOATS)
