"""Files, CSV lines, summaries, and serialized Examples."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from msgspec import Struct

from mobileprep.core.limits import STEP, spend
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tf_record import Feature, read_example, read_feature
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.arrays import check_allocation
from mobileprep.ops.kernel import free, kernel
from mobileprep.ops.numerics.texts import as_texts, one_text, texts
from mobileprep.ops.shape_function import (
    UNKNOWN,
    OutputShapes,
    ShapeArgs,
    fixed,
    no_outputs,
    scalars_only,
    shape_fn,
    with_rank,
)
from mobileprep.ops.strings.strings import number_in

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


_INT64 = np.dtype(np.int64)
# Steps for reading a feature of an example.
_STEPS = 8


class _Batch(Struct, frozen=True):
    """Serialized examples with located, but unparsed features.

    Args:
        examples: one mapping for each example.
        single: whether the outputs have no axis for the examples.
    """

    examples: Sequence[Mapping[bytes, memoryview]]
    single: bool

    @staticmethod
    def of(serialized: Array, *, single: bool) -> _Batch:
        """Read the examples of a string tensor."""
        if serialized.ndim > 1 or (single and serialized.ndim):
            message = f"serialized examples of shape {list(serialized.shape)} are not vectors"
            raise ValueError(message)
        spend(_STEPS * STEP * serialized.size, "reading the examples")
        return _Batch([read_example(data) for data in texts(serialized)], single)

    def column(self, name: bytes, kind: DType) -> list[Feature | None]:
        """Read one feature of every example, None for examples without it."""
        spend(_STEPS * STEP * len(self.examples), "reading a feature")
        features = []
        for example in self.examples:
            data = example.get(name)
            feature = None if data is None else read_feature(data)
            if feature is not None and feature.dtype is not kind:
                message = f"the feature {_shown(name)} holds {feature.dtype.name}, not {kind.name}"
                raise TypeError(message)
            features.append(feature)
        return features


@kernel("ParseExample", flops=free)
def parse_example(node: Node, serialized: Array, names: Array, *rest: Array) -> tuple[Array, ...]:
    """Parse features of serialized examples into sparse and dense tensors.

    Args:
        node: with the types of the features, and the shapes of the dense ones.
        names: [batch] or [0], the names of the examples; not used.

    Returns:
        The indices of all sparse features, the values, the shapes, and the dense tensors.
    """
    if serialized.ndim != 1:
        message = f"a vector of examples is needed, not the shape {list(serialized.shape)}"
        raise ValueError(message)
    sparse, dense = node.attr_int("Nsparse"), node.attr_int("Ndense")
    keys = [one_text(key) for key in rest[: sparse + dense]]
    batch = _Batch.of(serialized, single=False)
    return (
        *_all_sparse(node, batch, keys[:sparse]),
        *_all_dense(node, batch, keys[sparse:], rest[sparse + dense :]),
    )


@shape_fn("ParseExample")
def parse_example_shape(args: ShapeArgs) -> OutputShapes:
    """Return shapes of sparse indices, values, and shapes, then of dense tensors with the batch."""
    batch = with_rank(args.shapes[0], 1)[0]
    sparse = args.node.attr_int("Nsparse")
    dense = args.node.attr_shapes("dense_shapes")
    rows: list[TensorShape] = [None if s is None else (batch, *s) for s in dense]
    return [*[(UNKNOWN, 2)] * sparse, *[(UNKNOWN,)] * sparse, *[(2,)] * sparse, *rows]


def _all_sparse(node: Node, batch: _Batch, keys: Sequence[bytes]) -> list[Array]:
    """Return the indices of all sparse features, then all values, then all shapes."""
    kinds = node.attr_dtypes("sparse_types")
    tensors = [_sparse(batch, *named) for named in zip(keys, kinds, strict=True)]
    return [part for parts in zip(*tensors, strict=True) for part in parts]


def _sparse(batch: _Batch, key: bytes, kind: DType) -> tuple[Array, Array, Array]:
    column = batch.column(key, kind)
    counts = _counts(column)
    values = _joined(column, kind)
    within = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts)
    if batch.single:
        return within[:, np.newaxis], values, counts
    indices = np.stack([np.repeat(np.arange(len(counts)), counts), within], axis=1)
    return indices, values, np.array([len(counts), counts.max(initial=0)], _INT64)


def _all_dense(
    node: Node, batch: _Batch, keys: Sequence[bytes], defaults: Sequence[Array]
) -> list[Array]:
    kinds, shapes = node.attr_dtypes("Tdense"), node.attr_shapes("dense_shapes")
    tensors = []
    for key, kind, shape, default in zip(keys, kinds, shapes, defaults, strict=True):
        make = _padded if shape and shape[0] < 0 else _fixed
        dense = make(batch.column(key, kind), key, kind, _known_shape(key, shape), default)
        tensors.append(dense.reshape(dense.shape[1:]) if batch.single else dense)
    return tensors


def _known_shape(key: bytes, shape: TensorShape) -> tuple[int, ...]:
    """Return a dense feature's shape, in which only the first dimension may be unknown."""
    if shape is None or min(shape[1:], default=0) < 0:
        message = f"the shape {shape} of the feature {_shown(key)} is not known"
        raise ValueError(message)
    return shape


def _fixed(
    column: Sequence[Feature | None],
    key: bytes,
    kind: DType,
    shape: tuple[int, ...],
    default: Array,
) -> Array:
    """Parse a feature with a fixed number of values in each example."""
    if default.size and default.shape != shape:
        _refuse(key, f"has a default of shape {list(default.shape)}, not {list(shape)}")
    out = _empty((len(column), math.prod(shape)), kind)
    for row, feature in zip(out, column, strict=True):
        if feature is None and default.shape != shape:
            _refuse(key, "is missing and has no default")
        values = default.ravel() if feature is None else feature.values
        if len(values) != len(row):
            _refuse(key, f"has {len(values)} values, not {len(row)}")
        row[:] = values
    return out.reshape(len(column), *shape)


def _padded(
    column: Sequence[Feature | None],
    key: bytes,
    kind: DType,
    shape: tuple[int, ...],
    default: Array,
) -> Array:
    """Parse a feature of varying length, padded with its default to the longest."""
    if default.size != 1:
        _refuse(key, "has a varying length, so its default must be one value")
    stride = math.prod(shape[1:])
    counts = _counts(column)
    if (counts % stride).any() if stride else counts.any():
        _refuse(key, f"has a number of values that {stride} does not divide")
    length = int(counts.max(initial=0)) // max(stride, 1)
    out = _empty((len(column), length * stride), kind)
    out[:] = default.reshape(())
    for row, feature in zip(out, column, strict=True):
        if feature is not None:
            row[: len(feature.values)] = feature.values
    return out.reshape(len(column), length, *shape[1:])


def _empty(shape: tuple[int, ...], kind: DType) -> Array:
    check_allocation(shape, _numpy(kind))
    return np.empty(shape, _numpy(kind))


def _counts(column: Sequence[Feature | None]) -> Array:
    return np.array([0 if f is None else len(f.values) for f in column], _INT64)


def _joined(column: Sequence[Feature | None], kind: DType) -> Array:
    """Concatenate the values of all examples."""
    parts = [feature.values for feature in column if feature is not None]
    if kind is DType.STRING:
        words = [word for part in parts for word in part]
        return as_texts(words, (len(words),))
    return np.concatenate([np.zeros(0, _numpy(kind)), *parts])


def _numpy(kind: DType) -> np.dtype[Any]:
    return np.dtype(object) if kind is DType.STRING else np.dtype(kind.numpy)


def _shown(key: bytes) -> str:
    return repr(key.decode(errors="replace"))


def _refuse(key: bytes, what: str) -> NoReturn:
    message = f"the feature {_shown(key)} {what}"
    raise ValueError(message)


@kernel("ParseExampleV2", flops=free)
def parse_example_v2(
    node: Node,
    serialized: Array,
    names: Array,
    sparse_keys: Array,
    dense_keys: Array,
    ragged_keys: Array,
    *defaults: Array,
) -> tuple[Array, ...]:
    """Parse one or several examples like ``ParseExample``, with additional ragged tensors."""
    batch = _Batch.of(serialized, single=serialized.ndim == 0)
    return (
        *_all_sparse(node, batch, texts(sparse_keys)),
        *_all_dense(node, batch, texts(dense_keys), defaults),
        *_all_ragged(node, batch, texts(ragged_keys)),
    )


@shape_fn("ParseExampleV2")
def parse_example_v2_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of sparse, dense, and ragged tensors, with a batch axis unless single."""
    serialized = args.shapes[0]
    if serialized is None:
        return [None] * args.count()
    count, rank = args.node.attr_int("num_sparse"), len(serialized) + 1
    ragged = 2 * len(args.node.attr_dtypes("ragged_value_types"))
    shapes = args.node.attr_shapes("dense_shapes")
    return [
        *[(UNKNOWN, rank)] * count,
        *[(UNKNOWN,)] * count,
        *[(rank,)] * count,
        *(None if shape is None else (*serialized, *shape) for shape in shapes),
        *[(UNKNOWN,)] * ragged,
    ]


def _all_ragged(node: Node, batch: _Batch, keys: Sequence[bytes]) -> list[Array]:
    """Return the values of all ragged features, then the row splits of each."""
    kinds, splits = node.attr_dtypes("ragged_value_types"), node.attr_dtypes("ragged_split_types")
    columns = [batch.column(*named) for named in zip(keys, kinds, strict=True)]
    values = [_joined(*named) for named in zip(columns, kinds, strict=True)]
    return values + [_row_splits(c, s, batch) for c, s in zip(columns, splits, strict=True)]


def _row_splits(column: Sequence[Feature | None], kind: DType, batch: _Batch) -> Array:
    if batch.single:
        # A single row does not have splits.
        return np.zeros(0, kind.numpy)
    return np.concatenate([[0], np.cumsum(_counts(column))]).astype(kind.numpy)


@kernel("ParseSingleExample", flops=free)
def parse_single_example(node: Node, serialized: Array, *defaults: Array) -> tuple[Array, ...]:
    """Parse features of one serialized example, with names in attributes."""
    batch = _Batch.of(serialized, single=True)
    return (
        *_all_sparse(node, batch, node.attr_strings("sparse_keys")),
        *_all_dense(node, batch, node.attr_strings("dense_keys"), defaults),
    )


@shape_fn("ParseSingleExample")
def parse_single_example_shape(args: ShapeArgs) -> OutputShapes:
    """Return the shapes of sparse indices, values, and shapes, then of dense tensors."""
    sparse = args.node.attr_int("num_sparse")
    dense = args.node.attr_shapes("dense_shapes")
    return [*[(UNKNOWN, 1)] * sparse, *[(UNKNOWN,)] * sparse, *[(1,)] * sparse, *dense]
