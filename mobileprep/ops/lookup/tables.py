"""Lookup tables, which keep their entries between runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from mobileprep.core.files import read_bytes
from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import handle_of, object_of
from mobileprep.ops.kernel import RunContext, context_kernel, free
from mobileprep.ops.numerics.texts import as_texts, one_text
from mobileprep.ops.shape_function import (
    OutputShapes,
    ShapeArgs,
    no_outputs,
    scalars_only,
    shape_fn,
)

_MOST_BYTES = 1 << 30


_LINE, _NUMBER = -2, -1


@dataclass(slots=True)
class Table:
    """A lookup table.

    Args:
        key, value: their types.
        filled: whether the table is filled; a mutable table always is.
        entries: values by key, strings as bytes.
    """

    key: DType
    value: DType
    filled: bool = False
    entries: dict[Any, Any] = field(default_factory=dict)

    def add(self, keys: Sequence[Any], values: Sequence[Any], *, fixed: bool) -> None:
        """Add keys with their values.

        Args:
            fixed: whether to raise an error for a key with two values.
        """
        if len(keys) != len(values):
            message = f"{len(keys)} keys for {len(values)} values"
            raise ValueError(message)
        for key, value in zip(keys, values, strict=True):
            if fixed and self.entries.get(key, value) != value:
                message = f"the key {key!r} has two values"
                raise ValueError(message)
            self.entries[key] = value
        self.filled = True

    def contents(self) -> tuple[Array, Array]:
        """Return keys and values, ``[count]`` each."""
        return _elements(self.entries, self.key), _elements(self.entries.values(), self.value)


def _elements(values: Collection[Any], kind: DType) -> Array:
    if kind is DType.STRING:
        return as_texts(values, (len(values),))
    return np.array(list(values), dtype=kind.numpy)


@context_kernel("HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2", flops=free)
def hash_table(context: RunContext, node: Node) -> Array:
    """Return a handle of the table with the node's name; create it if necessary."""
    name = node.attr_str("shared_name", "") or node.name
    key, value = node.attr_dtype("key_dtype"), node.attr_dtype("value_dtype")
    table = Table(key, value, filled=node.op.startswith("Mutable"))
    return handle_of(context.resources.setdefault(f"table {name}", table))


@shape_fn(
    *("HashTable", "HashTableV2", "MutableHashTable", "MutableHashTableV2"),
)
def table_shape(args: ShapeArgs) -> OutputShapes:
    """Return a scalar handle, or a reference of two strings."""
    return [() if args.node.op.endswith("V2") else (2,)]


@context_kernel("InitializeTable", "InitializeTableV2", shape=no_outputs, flops=free)
def initialize_table(
    context: RunContext, node: Node, handle: Array, keys: Array, values: Array
) -> Array:
    """Fill a table and return its handle, so that this can be fetched."""
    _table(handle).add(keys.ravel().tolist(), values.ravel().tolist(), fixed=True)
    return handle


def _table(handle: Array) -> Table:
    return object_of(handle, Table, "table")


@context_kernel(
    "InitializeTableFromTextFile", "InitializeTableFromTextFileV2", shape=no_outputs, flops=free
)
def initialize_from_file(context: RunContext, node: Node, handle: Array, file: Array) -> Array:
    """Fill a table from the lines of a file and return its handle.

    The attributes ``key_index`` and ``value_index`` select a column between ``delimiter``, the
    whole line (-2), or its number (-1), to which ``offset`` is added.
    """
    fill_from_file(_table(handle), node, Path(one_text(file).decode("utf-8", "surrogateescape")))
    return handle


def fill_from_file(table: Table, node: Node, path: Path) -> None:
    """Add the lines of a file, as specified by an ``InitializeTableFromTextFile`` node."""
    rows = list(_rows(node, path))
    columns = node.attr_int("key_index"), node.attr_int("value_index")
    keys, values = (
        [_field(node, row, column, kind, path) for row in rows]
        for column, kind in zip(columns, (table.key, table.value), strict=True)
    )
    table.add(keys, values, fixed=True)


class _Row(Struct, frozen=True):
    number: int
    line: bytes


def _rows(node: Node, path: Path) -> Iterator[_Row]:
    lines = read_bytes(path, limit=_MOST_BYTES).split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    size = node.attr_int("vocab_size", -1)
    if size > len(lines):
        message = f"has {len(lines)} lines, and {size} are needed"
        raise _unfit(message, path)
    if not lines:
        message = "has no lines to fill a table from"
        raise _unfit(message, path)
    for number, line in enumerate(lines[: size if size > 0 else None]):
        text = line.rstrip(b"\r")
        if not text:
            message = f"line {number + 1} is empty, which TensorFlow does not accept"
            raise InvalidGraphError(message, "remove the line", str(path))
        yield _Row(number, text)


def _field(node: Node, row: _Row, place: int, kind: DType, path: Path) -> Any:  # noqa: ANN401
    """Return the key or value of one line."""
    if place == _NUMBER:
        return row.number + node.attr_int("offset", 0)
    if place == _LINE:
        text = row.line
    else:
        columns = row.line.split(node.attr_str("delimiter", "\t").encode())
        if not 0 <= place < len(columns):
            message = f"line {row.number + 1} has no column {place}"
            raise _unfit(message, path)
        text = columns[place]
    if kind is DType.STRING:
        return text
    try:
        return float(text) if kind.is_floating else int(text)
    except ValueError as error:
        message = f"line {row.number + 1} holds {text[:20]!r}, which is not of dtype {kind.short}"
        raise _unfit(message, path) from error


def _unfit(message: str, path: Path) -> InvalidGraphError:
    return InvalidGraphError(message, "take the vocabulary that the model has", str(path))


@context_kernel(
    *("LookupTableInsert", "LookupTableInsertV2", "LookupTableImport", "LookupTableImportV2"),
    shape=no_outputs,
    flops=free,
)
def insert(context: RunContext, node: Node, handle: Array, keys: Array, values: Array) -> Array:
    """Insert keys, or replace the content of the table, and return its handle."""
    table = _table(handle)
    if "Import" in node.op:
        table.entries.clear()
    table.add(keys.ravel().tolist(), values.ravel().tolist(), fixed=False)
    return handle


@context_kernel("LookupTableFind", "LookupTableFindV2", flops=free)
def find(context: RunContext, node: Node, handle: Array, keys: Array, default: Array) -> Array:
    """Return the value of each key, or the default for missing keys."""
    entries = _filled(handle, node).entries
    missing = default.reshape(())[()]
    values = [entries.get(key, missing) for key in keys.ravel().tolist()]
    if default.dtype == object:
        return as_texts(values, keys.shape)
    return np.array(values, dtype=default.dtype).reshape(keys.shape)


@shape_fn("LookupTableFind", "LookupTableFindV2")
def find_shape(args: ShapeArgs) -> OutputShapes:
    """Return a value for each key, in the default's shape; unknown for a reference."""
    is_known = args.node.op.endswith("V2") and args.shapes[2] == ()
    return [args.shapes[1] if is_known else None]


def _filled(handle: Array, node: Node) -> Table:
    table = _table(handle)
    if not table.filled:
        message = f"node {node.name!r} ({node.op}) looks into a table that was not filled"
        raise InvalidGraphError(message, "run the graph's initializer of tables first")
    return table


@context_kernel("LookupTableSize", "LookupTableSizeV2", shape=scalars_only, flops=free)
def size(context: RunContext, node: Node, handle: Array) -> Array:
    """Return the number of keys."""
    return np.array(len(_filled(handle, node).entries), dtype=np.int64)
