"""Element types supported by LiteRT's operators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.litert.program import Op, Program, Value, builtin
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
"""Names of element types in the file format, which lacks TensorFlow's quantized types."""

# Types supported by operators that move or select elements, as of ai-edge-litert 2.3. With other
# types, its interpreter rejects the file or aborts.
_PLAIN: Final = frozenset(
    {DType.FLOAT, DType.INT8, DType.UINT8, DType.INT16, DType.INT32, DType.INT64}
)
_HALVES: Final = frozenset({DType.HALF, DType.BFLOAT16})
_WIDE: Final = _PLAIN | _HALVES | {DType.BOOL}
_MOST: Final = frozenset(NAMES) - {DType.COMPLEX128}
_MOVING: Final[Mapping[str, frozenset[DType]]] = {
    **dict.fromkeys(("GATHER", "GATHER_ND", "PAD", "PADV2", "REVERSE_V2"), _WIDE),
    "CONCATENATION": _WIDE | {DType.UINT32},
    "PACK": _PLAIN | {DType.UINT32},
    "UNPACK": _WIDE - {DType.INT64},
    **dict.fromkeys(("SPLIT", "SPLIT_V"), _PLAIN),
    "WHERE": _PLAIN - {DType.INT16} | {DType.BOOL, DType.UINT32},
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), _PLAIN - {DType.INT16}),
    **dict.fromkeys(("SCATTER_ND", "ONE_HOT"), _PLAIN - {DType.INT16} | {DType.BOOL}),
    "RESIZE_NEAREST_NEIGHBOR": _WIDE - {DType.INT64} | {DType.UINT16, DType.UINT32},
    **dict.fromkeys(("MIRROR_PAD", "TRANSPOSE", "TILE", "FILL", "SELECT", "SELECT_V2"), _MOST),
    **dict.fromkeys(("SLICE", "STRIDED_SLICE"), _MOST),
    **dict.fromkeys(("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"), _MOST),
    "CAST": _MOST - {DType.UINT64},
}

FLOATS: Final = frozenset({DType.FLOAT})
NUMBERS: Final = frozenset({DType.FLOAT, DType.INT32})
LONG_NUMBERS: Final = NUMBERS | {DType.INT64}


def need(values: Sequence[Value], allowed: Iterable[DType]) -> None:
    """Raise ``CannotExpressError`` for inputs of types that a LiteRT operator does not support."""
    _need((value.dtype for value in values), frozenset(allowed))


def check_moved(code: str, kinds: Iterable[DType]) -> None:
    """Raise an error for types that an operator that moves or selects elements does not support."""
    supported = _MOVING.get(code)
    if supported is not None:
        _need(kinds, supported)


def _need(kinds: Iterable[DType], supported: frozenset[DType]) -> None:
    for kind in kinds:
        if kind not in supported:
            names = ", ".join(k.short for k in sorted(supported))
            reason = f"LiteRT computes it for {names}, not for {kind.short}"
            raise CannotExpressError(reason, "cast its inputs")


def need_float(values: Sequence[Value]) -> None:
    """Raise ``CannotExpressError`` for inputs that are not float32."""
    need(values, FLOATS)


TABLE: Final = "HASHTABLE"
"""The operator that creates a table: keys and values are inputs in a program, but not in a file."""


def initialized(main: Program) -> Program:
    """Prepend calls of subgraphs that fill the tables of a program."""
    ops = [replace(op, inputs=()) if op.code == TABLE else op for op in main.ops]
    return main.with_ops([*_calls(main), *ops])


def _calls(main: Program) -> Iterator[Op]:
    for op in main.ops:
        if op.code == TABLE:
            handle = replace(op.outputs[0], name=f"{op.outputs[0].name}_to_fill")
            table = replace(op, inputs=(), outputs=(handle,))
            filled = builtin("HASHTABLE_IMPORT", (handle, *op.inputs), ())
            program = Program((), (), (table, filled), f"fill_{op.outputs[0].name}")
            yield replace(builtin("CALL_ONCE", (), ()), subgraphs=(program,))
