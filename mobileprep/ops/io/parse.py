"""Files, CSV lines, and summaries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.cost import free
from mobileprep.ops.kernel import kernel
from mobileprep.ops.numerics.texts import as_texts, texts
from mobileprep.ops.shape_function import (
    OutputShapes,
    ShapeArgs,
    fixed,
    no_outputs,
    scalars_only,
    shape_fn,
)
from mobileprep.ops.strings.conversion import number_in

_QUOTE = b'"'


_LINE_ENDS = b"\r\n"


_STRAY = re.compile(rb'["\r\n]')


_STRAY_LINE_END = re.compile(rb"[\r\n]")


@kernel("DecodeCSV", flops=free)
def decode_csv(node: Node, records: Array, *defaults: Array) -> tuple[Array, ...]:
    """Parse records into a tensor for each column, in the shape of the records.

    Args:
        node: with ``field_delim`` (one character), ``use_quote_delim``, ``na_value`` (marks a
            missing value, in addition to an empty field), and ``select_cols`` (empty for all
            columns).
        defaults: for each column [1] or a scalar, or [0] if no field may be missing.
    """
    delimiter = node.attr_str("field_delim", ",").encode()
    if len(delimiter) != 1 or any(d.size > 1 for d in defaults):
        message = "one character between fields, and at most one default a column are needed"
        raise ValueError(message)
    quoted = node.attr_bool("use_quote_delim", True)
    chosen = node.attr_ints("select_cols", ())
    if (np.diff(chosen) <= 0).any() or min(chosen, default=0) < 0:
        message = f"the columns {list(chosen)} do not ascend"
        raise ValueError(message)
    rows = []
    for i, record in enumerate(texts(records)):
        fields = [*_fields(record, delimiter, quoted=quoted)]
        fields = [fields[c] for c in chosen if c < len(fields)] if chosen else fields
        if len(fields) != len(defaults):
            message = f"record {i} has {len(fields)} fields, not {len(defaults)}"
            raise ValueError(message)
        rows.append(fields)
    columns = zip(*rows, strict=True) if rows else [()] * len(defaults)
    missing = (b"", node.attr_str("na_value", "").encode())
    return tuple(
        _column(fields, default, missing).reshape(records.shape)
        for fields, default in zip(columns, defaults, strict=True)
    )


@shape_fn("DecodeCSV")
def decode_csv_shape(args: ShapeArgs) -> OutputShapes:
    """Return the records' shape for each column."""
    return [args.shapes[0]] * args.count()


def _fields(record: bytes, delimiter: bytes, *, quoted: bool) -> Iterator[bytes]:
    """Yield the fields of one record, without their quotes."""
    if not record:
        return
    if not _STRAY.search(record):
        yield from record.split(delimiter)
        return
    stray = _STRAY if quoted else _STRAY_LINE_END
    position = 0
    while position < len(record):
        if record[position] in _LINE_ENDS:
            position += 1
        elif quoted and record.startswith(_QUOTE, position):
            field, position = _quoted(record, position + 1, delimiter)
            yield field
        else:
            end = record.find(delimiter, position)
            end = len(record) if end < 0 else end
            field = record[position:end]
            if stray.search(field):
                message = f"the field {field[:40]!r} has a quote or line end and is not quoted"
                raise ValueError(message)
            yield field
            position = end + 1
    if record.endswith(delimiter):
        yield b""


def _quoted(record: bytes, start: int, delimiter: bytes) -> tuple[bytes, int]:
    """Parse a field after its opening quote; return it and the start of the next."""
    parts = []
    while True:
        end = record.find(_QUOTE, start)
        follower = record[end + 1 : end + 2]
        if end >= 0 and follower in (b"", delimiter):
            parts.append(record[start:end])
            return b"".join(parts), end + 2
        if end < 0 or follower != _QUOTE:
            message = f"a quoted field of {record[:40]!r} does not end with a quote"
            raise ValueError(message)
        # A doubled quote is an escaped quote.
        parts.append(record[start : end + 1])
        start = end + 2


def _column(fields: tuple[bytes, ...], default: Array, missing: tuple[bytes, ...]) -> Array:
    kind = default.dtype
    defaults: list[Any] = default.ravel().tolist()
    convert: Callable[[bytes], Any] = (
        (lambda field: field) if kind.hasobject else (lambda field: number_in(field, kind))
    )
    if not defaults and any(field in missing for field in fields):
        message = "a field without a default is missing"
        raise ValueError(message)
    values = [defaults[0] if field in missing else convert(field) for field in fields]
    if kind.hasobject:
        return as_texts(values, (len(values),))
    return np.array(values, dtype=kind)


shape_fn("Save", "SaveSlices", "SaveV2")(no_outputs)


@shape_fn("RestoreV2")
def restore_v2_shape(args: ShapeArgs) -> OutputShapes:
    """Return unknown shapes."""
    return [None] * args.count()


shape_fn("MergeV2Checkpoints", "ReadFile", "SerializeTensor", "ShardedFilename", "WriteFile")(
    scalars_only
)


shape_fn("ParseTensor")(fixed(None))


shape_fn(
    "AudioSummaryV2",
    "HistogramSummary",
    "ImageSummary",
    "MergeSummary",
    "ScalarSummary",
    "Timestamp",
)(scalars_only)
