"""Errors for nodes that LiteRT cannot express, with the reason and a fix."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.layout import layout
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.graph.opdefs.definitions import any_op_def, check_input_count
from mobileprep.graph.reachability import closure
from mobileprep.litert.program import Value

_NODES_SHOWN: Final = 4
_PADDINGS: Final = frozenset({b"SAME", b"VALID", b"EXPLICIT"})
_MOST_OUTPUTS: Final = 1 << 16
MALFORMED: Final = (ValueError, TypeError, LookupError, ArithmeticError)
"""Exceptions raised by Python for nodes with missing or invalid inputs or attributes."""


GIVE_SHAPES: Final = (
    "give the shapes of the inputs: `inputs:` in a recipe, --input_shapes for `mobileprep tflite`"
)
"""The fix if the graph does not record sizes."""


_VERSION: Final = re.compile(r"V\d+\Z")
# Ops whose names differ from the builtins' in more than case and version.
_OTHER_NAMES: Final = {
    "AssignVariableOp": "ASSIGN_VARIABLE",
    "LookupTableImport": "HASHTABLE_IMPORT",
    "LookupTableSize": "HASHTABLE_SIZE",
    "ReadVariableOp": "READ_VARIABLE",
    "VarHandleOp": "VAR_HANDLE",
}


def builtin_named(op: str) -> str | None:
    """Return the builtin operator with the name of a TensorFlow op, or None."""
    plain = _VERSION.sub("", op)
    if plain in _OTHER_NAMES:
        return _OTHER_NAMES[plain]
    builtins = layout().enums["BuiltinOperator"]
    names = {builtin.replace("_", ""): builtin for builtin in builtins}
    return names.get(op.upper(), names.get(plain.upper()))


class CannotExpressError(Exception):
    """A node that LiteRT's operators cannot express.

    Args:
        reason: a clause that explains why.
        hint: how the user can fix it.
    """

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason = reason
        self.hint = hint


class Refusal(Struct, frozen=True):
    """A node that cannot be expressed."""

    node: str
    op: str
    reason: str
    mend: str


class InexpressibleError(UnsupportedError):
    """A graph with nodes that LiteRT's operators cannot express.

    Args:
        message, hint, where: see ``MobileprepError``.
        refusals: the nodes, in graph order.
    """

    def __init__(
        self, message: str, hint: str = "", where: str = "", refusals: Sequence[Refusal] = ()
    ) -> None:
        super().__init__(message, hint, where)
        self.refusals = tuple(refusals)


def refused(
    refusals: Sequence[Refusal], where: str, shapeless: Sequence[str] = ()
) -> InexpressibleError:
    """Return the error that lists all nodes, grouped by op, reason, and fix, in graph order.

    Args:
        refusals: the nodes.
        where: the location of the graph.
        shapeless: the inputs of unknown rank; values computed from their shapes are not constant.
    """
    before = f"{GIVE_SHAPES} ({', '.join(shapeless)}); else " if shapeless else ""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for refusal in refusals:
        kind = (refusal.op, refusal.reason, refusal.mend)
        alike.setdefault(kind, []).append(refusal.node)
    lines = [f"{op} {listed(nodes)}: {why}; {hint}" for (op, why, hint), nodes in alike.items()]
    if len(lines) == 1:
        ((op, why, hint), nodes) = next(iter(alike.items()))
        message = f"{op} {listed(nodes)}: {why}"
        return InexpressibleError(message, before + hint, where, refusals)
    message = f"LiteRT cannot express {len(refusals)} nodes:\n  " + "\n  ".join(lines)
    ops = ", ".join(dict.fromkeys(refusal.op for refusal in refusals))
    return InexpressibleError(message, f"{before}cut or replace them: {ops}", where, refusals)


def malformed(node: Node, error: Exception) -> InvalidGraphError:
    """Return the error for a node whose inputs or attributes do not match its op."""
    message = f"node {node.name!r} ({node.op}) has not the inputs or attributes of its op: {error}"
    return InvalidGraphError(message, "the graph was written by a faulty tool")


def check_node(node: Node, where: str) -> None:
    """Check a node's inputs, number of outputs, and padding."""
    definition = any_op_def(node.op)
    check_input_count(node, where)
    for arg in definition.outputs if definition is not None else ():
        count = node.attr_int(arg.number_attr, 0) if arg.number_attr else 0
        if not 0 <= count <= _MOST_OUTPUTS:
            message = f"it declares {count} tensors for {arg.name!r}"
            raise ValueError(message)
    held = node.attrs.get("padding")
    if held is not None and held.kind == "string" and held.value not in _PADDINGS:
        message = f"unknown padding {held.value!r}"
        raise ValueError(message)


def listed(names: Sequence[str], most: int = _NODES_SHOWN) -> str:
    """Format the first names, and the number of the others."""
    shown = ", ".join(map(repr, names[:most]))
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown


FINDS: Final = ("LookupTableFind", "LookupTableFindV2")
SIZES: Final = ("LookupTableSize", "LookupTableSizeV2")
_PASSING: Final = frozenset({"Identity", "StopGradient", "Snapshot", "Reshape"})


def is_looked_up(graph: Graph, node: Node) -> bool:
    """Return whether a node's strings feed a lookup, as keys or as the default value."""

    def readers(name: str) -> list[str]:
        passed = graph[name].op in _PASSING or name == node.name
        return [reader.name for reader in graph.consumers.get(name, ())] if passed else []

    return any(graph[name].op in FINDS for name in closure([node.name], readers))


def check_texts(node: Node, inputs: Sequence[Value]) -> None:
    """Raise ``CannotExpressError`` for string operations that LiteRT does not support."""
    kinds = {value.dtype for value in inputs}
    if DType.STRING in kinds and node.op not in (*FINDS, *_PASSING):
        reason = "mobileprep converts no operators on strings except lookups in tables"
        raise CannotExpressError(reason, "do this in the app, and cut the graph there")


def check_tables(node: Node, inputs: Sequence[Value]) -> None:
    """Raise ``CannotExpressError`` for table operations that LiteRT does not support."""
    kinds = {value.dtype for value in inputs}
    if DType.RESOURCE in kinds and node.op not in (*FINDS, *SIZES, *_PASSING):
        reason = "a table goes where LiteRT takes none"
        raise CannotExpressError(reason, "look up outside of loops and branches")
