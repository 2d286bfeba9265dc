"""Segment reductions, bincount, unique, partitioning, and ragged tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.litert.arithmetic import Arithmetic, IndexArithmetic, filled
from mobileprep.litert.ops.math import repeated
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.scope import Scope, lowering
from mobileprep.litert.shapes import as_int32, gather, reshaped
from mobileprep.litert.types import LONG_NUMBERS, NAMES, NUMBERS, need, need_float

_UNSORTED: Final = [f"UnsortedSegment{kind}" for kind in ("Sum", "Prod", "Max", "Min")]
_SPARSE: Final = [
    f"SparseSegment{kind}{suffix}"
    for kind in ("Sum", "Mean", "SqrtN")
    for suffix in ("", "WithNumSegments")
]


@lowering("SegmentSum")
def segment_sum(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit SEGMENT_SUM, or UNSORTED_SEGMENT_SUM if constant segment IDs have gaps."""
    need(inputs[:1], NUMBERS)
    values = [inputs[0], as_int32(scope, node, 1, inputs[1])]
    steps = _steps(scope, node)
    if (steps <= 1).all():
        return scope.emit("SEGMENT_SUM", values, scope.output_shape(node))
    # SEGMENT_SUM aborts at a gap. Gaps in computed segment IDs cannot be detected in advance.
    rows = int(steps.sum())
    return combined(scope, "Sum", values[0], values[1], scope.integers_constant(np.array(rows)))


def _steps(scope: Scope, node: Node) -> Array:
    """Return the differences of consecutive constant segment IDs, the first relative to -1."""
    ids = scope.known_value(node, 1)
    if ids is None:
        return np.zeros(0, np.int64)
    steps = np.diff(ids.reshape(-1).astype(np.int64), prepend=-1)
    if (steps < 0).any() or not steps[:1].all():
        message = "its segments are not in ascending order from 0 on"
        raise ValueError(message)
    return steps


@lowering(*_UNSORTED)
def unsorted_segments(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit the builtin for segments in any order."""
    need(inputs[:1], NUMBERS)
    values = [inputs[0], *(as_int32(scope, node, i, inputs[i]) for i in (1, 2))]
    code = _code(node.op.removeprefix("UnsortedSegment"))
    return scope.emit(code, values, scope.output_shape(node))


@lowering("SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd")
def segments(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit the builtin for unsorted segments; maxima and minima of empty segments are 0."""
    data, kind = inputs[0], node.op.removeprefix("Segment")
    ids = as_int32(scope, node, 1, inputs[1])
    _steps(scope, node)
    count = _count(scope, ids)
    if kind == "Mean":
        need_float([data])
        return _averaged(scope, data, ids, count)
    need([data], NUMBERS)
    result = combined(scope, kind, data, ids, count)
    if kind == "Prod":
        return result
    rows = _row_counts(scope, data, ids, count)
    work = Arithmetic(scope, data.dtype)
    return work.select(Arithmetic(scope).compare("GREATER", rows, 0), result, 0)


@lowering(*_SPARSE)
def sparse_segments(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """GATHER the rows, then apply UNSORTED_SEGMENT_SUM."""
    need(inputs[:1], NUMBERS)
    data, indices = inputs[:2]
    ids = as_int32(scope, node, 2, inputs[2])
    count = as_int32(scope, node, 3, inputs[3]) if len(inputs) > 3 else _count(scope, ids)
    shape = None if data.shape is None else (-1, *data.shape[1:])
    rows = scope.emit("GATHER", [data, indices], shape, axis=0, batch_dims=0)
    if node.op.startswith("SparseSegmentSum"):
        return combined(scope, "Sum", rows, ids, count)
    need_float([data])
    return _averaged(scope, rows, ids, count, is_root="SqrtN" in node.op)


def _averaged(
    scope: Scope, rows: Value, ids: Value, count: Value, *, is_root: bool = False
) -> Value:
    """Divide sums by segment by the number of rows or by its square root."""
    work = Arithmetic(scope)
    divisor = work.maximum(_row_counts(scope, rows, ids, count), 1)
    if is_root:
        divisor = work.one("SQRT", divisor)
    return work.div(combined(scope, "Sum", rows, ids, count), divisor)


def _row_counts(scope: Scope, rows: Value, ids: Value, count: Value) -> Value:
    """Return the number of rows per segment as float32, broadcastable to the rows."""
    if rows.rank is None:
        reason = "the rank of its data is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    ones = filled(scope, ids, np.float32(1))
    counts = combined(scope, "Sum", ones, ids, count)
    return reshaped(scope, counts, (-1, *(1,) * (rows.rank - 1)))


def _count(scope: Scope, ids: Value) -> Value:
    """Return the number of segments: the largest ID plus 1."""
    if ids.data is not None:
        return scope.integers_constant(np.array(ids.data.max(initial=-1) + 1))
    axes = scope.integers_constant([0], "axes")
    last = scope.emit("REDUCE_MAX", [ids, axes], (), keep_dims=False)
    return IndexArithmetic(scope).add(last, 1)


def combined(scope: Scope, kind: str, rows: Value, ids: Value, count: Value) -> Value:
    """Emit UNSORTED_SEGMENT_SUM, PROD, MAX, or MIN."""
    size = -1 if count.data is None else int(count.data)
    shape = None
    if rows.shape is not None and ids.rank is not None:
        shape = (size, *rows.shape[ids.rank :])
    return scope.emit(_code(kind), [rows, ids, count], shape)


def _code(kind: str) -> str:
    return f"UNSORTED_SEGMENT_{kind.upper()}"


@lowering("Bincount", "DenseBincount")
def bincount(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Emit UNSORTED_SEGMENT_SUM of ones or weights, limited to 1 for a binary output."""
    numbers, weights = as_int32(scope, node, 0, inputs[0]), inputs[2]
    kind = weights.dtype
    is_binary = node.op == "DenseBincount" and node.attr_bool("binary_output", False)
    in_rows = numbers.rank == 2 and node.op == "DenseBincount"
    sizes = numbers.shape
    if sizes is None or weights.shape is None or (in_rows and -1 in sizes):
        reason = "the shape of its numbers or of its weights is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    is_weighted = weights.shape != (0,) and not is_binary
    if is_weighted:
        need([weights], NUMBERS)
    work = IndexArithmetic(scope)
    size = work.reshaped(as_int32(scope, node, 1, inputs[1]), ())
    # Values out of range are ignored: the ID -1 belongs to no segment.
    ids = work.select(work.less(numbers, size), numbers, work.number(-1))
    count = size
    if in_rows:
        rows = sizes[0]
        first = work.mul(work.number(np.arange(rows).reshape(-1, 1)), size)
        ids = work.select(work.less(numbers, size), work.add(numbers, first), work.number(-1))
        count = work.mul(size, rows)
    addends = weights if is_weighted else filled(scope, numbers, np.int32(1))
    counts = combined(scope, "Sum", addends, ids, count)
    if is_binary:
        counts = IndexArithmetic(scope).minimum(counts, 1)
    counts = Arithmetic(scope).cast(counts, kind)
    return reshaped(scope, counts, (sizes[0], -1)) if in_rows else counts


_UNIQUE: Final = LONG_NUMBERS | {DType.INT16, DType.INT8, DType.UINT8}


@lowering("Unique", "UniqueV2")
def unique(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    return _unique(scope, node, inputs, node.attr_dtype("out_idx", DType.INT32))


@lowering("UniqueWithCounts", "UniqueWithCountsV2")
def unique_with_counts(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Emit UNIQUE, and UNSORTED_SEGMENT_SUM of ones."""
    values, places = _unique(scope, node, inputs, DType.INT32)
    ones = filled(scope, places, np.int32(1))
    sizes = scope.emit("SHAPE", [values], (1,), DType.INT32, out_type="INT32")
    counts = combined(scope, "Sum", ones, places, reshaped(scope, sizes, ()))
    work, kind = Arithmetic(scope), node.attr_dtype("out_idx", DType.INT32)
    return values, work.cast(places, kind), work.cast(counts, kind)


def _unique(scope: Scope, node: Node, inputs: Sequence[Value], kind: DType) -> tuple[Value, ...]:
    """Emit UNIQUE with indices of a type."""
    value = inputs[0]
    need([value], _UNIQUE)
    if len(inputs) > 1 and scope.integers(node, 1, "axis") and value.rank != 1:
        reason = "it compares slices along an axis, and LiteRT compares elements of vectors"
        raise CannotExpressError(reason, "give a vector")
    outputs = [(scope.output_shape(node), value.dtype), (value.shape, kind)]
    return scope.emit_many("UNIQUE", [value], outputs, idx_out_type=NAMES[kind])


@lowering("InvertPermutation")
def invert_permutation(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """SCATTER_ND the indices to their positions."""
    work, kind = IndexArithmetic(scope), inputs[0].dtype
    order = as_int32(scope, node, 0, inputs[0])
    (size,) = work.sizes(order)
    column = work.reshaped(order, (-1, 1))
    operands = [column, work.range(size), work.joined([size])]
    placed = scope.emit("SCATTER_ND", operands, order.shape)
    return Arithmetic(scope).cast(placed, kind)


@lowering("DynamicPartition")
def dynamic_partition(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """For each partition, emit WHERE, then GATHER_ND of the rows."""
    data, parts = inputs[0], as_int32(scope, node, 1, inputs[1])
    result = []
    for i in range(node.attr_int("num_partitions")):
        chosen = Arithmetic(scope, DType.INT32).compare("EQUAL", parts, i)
        places = (-1, -1 if parts.rank is None else parts.rank)
        where = scope.emit("WHERE", [chosen], places, DType.INT64)
        shape, operands = scope.output_shape(node, i), [data, where]
        result.append(scope.emit("GATHER_ND", operands, shape, data.dtype))
    return tuple(result)


@lowering("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Find the last row of each index with UNSORTED_SEGMENT_MAX of row numbers, then GATHER."""
    count = len(inputs) // 2
    work, shape = IndexArithmetic(scope), scope.output_shape(node)
    if shape is None or -1 in shape[1:]:
        reason = "the shape of its rows is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    indices = [as_int32(scope, node, i, inputs[i]) for i in range(count)]
    places = joined(scope, [work.reshaped(index, (-1,)) for index in indices])
    rows = joined(scope, [reshaped(scope, part, (-1, *shape[1:])) for part in inputs[count:]])
    (total,) = work.sizes(places)
    last = combined(scope, "Max", work.range(total), places, _count(scope, places))
    # An index that does not occur selects the first row.
    operands = [rows, work.maximum(last, 0)]
    return scope.emit("GATHER", operands, shape, axis=0, batch_dims=0)


def joined(scope: Scope, parts: Sequence[Value]) -> Value:
    """Concatenate tensors along the first axis."""
    if len(parts) == 1:
        return parts[0]
    constants = [part.data for part in parts if part.data is not None]
    if len(constants) == len(parts):
        return scope.constant(np.concatenate(constants))
    lengths = [-1 if part.shape is None else part.shape[0] for part in parts]
    shape = (-1 if -1 in lengths else sum(lengths), *(parts[0].shape or (-1,))[1:])
    return scope.emit("CONCATENATION", parts, shape, axis=0)


_FIRST: Final = b"FIRST_DIM_SIZE"
_IDS: Final = b"VALUE_ROWIDS"


@lowering("RaggedRange")
def ragged_range(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """Compute the length of each row, then the start of its row and its position for each value."""
    need(inputs, NUMBERS)
    start, limit, delta = inputs
    whole, work = IndexArithmetic(scope), Arithmetic(scope, start.dtype)
    if start.dtype is DType.FLOAT:
        count = work.one("CEIL", work.div(work.sub(limit, start), delta))
        count = work.cast(count, DType.INT32)
    else:
        count = whole.sub(0, whole.floor_div(whole.sub(start, limit), delta))
    rows = _Rows(whole, lengths=whole.maximum(whole.reshaped(count, (-1,)), 0))
    first, step = (
        value if value.shape == () else gather(scope, value, rows.ids) for value in (start, delta)
    )
    places = work.cast(rows.places, start.dtype)
    splits = work.cast(rows.splits, node.attr_dtype("Tsplits", DType.INT64))
    return splits, work.add(first, work.mul(places, step))


@lowering("RaggedGather")
def ragged_gather(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """GATHER the splits of each level and the values."""
    *nested, values, indices = inputs
    if indices.rank != 1:
        reason = "the rank of its indices is not known to be 1"
        raise CannotExpressError(reason, "gather by a vector of indices")
    whole, kind = IndexArithmetic(scope), nested[0].dtype
    chosen = as_int32(scope, node, len(inputs) - 1, indices)
    result = []
    for i in range(len(nested)):
        source = _Rows(whole, splits=as_int32(scope, node, i, nested[i]))
        rows = _Rows(whole, lengths=gather(scope, source.lengths, chosen))
        starts = gather(scope, source.splits, chosen)
        result.append(Arithmetic(scope).cast(rows.splits, kind))
        chosen = whole.add(gather(scope, starts, rows.ids), rows.places)
    return *result, gather(scope, values, chosen)


@lowering("RaggedTensorToTensor")
def ragged_to_dense(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """Compute the value index of each cell with UNSORTED_SEGMENT_MAX, then GATHER."""
    shape, values, default = inputs[:3]
    if values.shape is None or shape.shape is None or -1 in values.shape[1:]:
        reason = "the shape of its values is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    whole = IndexArithmetic(scope)
    kinds = list(node.attr_strings("row_partition_types"))
    parts = [as_int32(scope, node, 3 + i, value) for i, value in enumerate(inputs[3:])]
    if kinds[:1] == [_FIRST]:
        count = whole.reshaped(parts[0], ())
        kinds, parts = kinds[1:], parts[1:]
    else:
        count = whole.sub(whole.sizes(parts[0])[0], 1)
    sizes, levels = [count], []
    for kind, part in zip(kinds, parts, strict=True):
        rows = _rows_of_ids(whole, part, count) if kind == _IDS else _Rows(whole, splits=part)
        sizes.append(rows.longest)
        levels.append(rows)
        (count,) = whole.sizes(rows.ids)
    if shape.shape:
        requested = as_int32(scope, node, 0, shape)
        elements = [whole.element(requested, i) for i in range(len(sizes))]
        sizes = [
            whole.select(whole.less(element, 0), size, element)
            for element, size in zip(elements, sizes, strict=True)
        ]
    place, cells = whole.range(whole.sizes(levels[0].splits)[0]), sizes[0]
    place = whole.select(whole.less(place, sizes[0]), place, whole.number(-1))
    for rows, size in zip(levels, sizes[1:], strict=True):
        parent = gather(scope, place, rows.ids)
        is_kept = whole.both(whole.less(-1, parent), whole.less(rows.places, size))
        inside = whole.add(whole.mul(parent, size), rows.places)
        place = whole.select(is_kept, inside, whole.number(-1))
        cells = whole.mul(cells, size)
    (total,) = whole.sizes(place)
    numbers = whole.add(whole.range(total), 1)
    source = whole.maximum(combined(scope, "Max", numbers, place, cells), 0)
    inner = values.shape[1:]
    first = reshaped(scope, repeated(scope, default, inner), (1, *inner))
    dense = gather(scope, joined(scope, [first, values]), source)
    return whole.shaped(dense, [*sizes, *map(whole.number, map(np.array, inner))])


class _Rows:
    """Rows of different lengths.

    Args:
        work: emits operators.
        lengths: the length of each row, unless ``splits`` is specified.
        splits: 0, followed by the cumulative sum of the lengths.
    """

    def __init__(
        self, work: IndexArithmetic, *, lengths: Value | None = None, splits: Value | None = None
    ) -> None:
        self._work = work
        if splits is not None:
            ends, starts = self._part(splits, 1), self._part(splits, 0)
            self.splits, self.lengths = splits, work.sub(ends, starts)
        elif lengths is not None:
            sums = self._sums(lengths)
            self.splits, self.lengths = joined(work.scope, [work.number([0]), sums]), lengths
        ends = self._part(self.splits, 1)
        (last,) = work.sizes(self.splits)
        total = gather(work.scope, self.splits, work.sub(last, 1))
        one = filled(work.scope, ends, np.int32(1))
        # A value's row ID is the number of rows that end before it.
        ended = self._sums(combined(work.scope, "Sum", one, ends, work.add(total, 1)))
        operands = [ended, work.number([0]), work.joined([total])]
        self.ids = work.scope.emit("SLICE", operands, (-1,))
        numbers = work.range(total)
        self.places = work.sub(numbers, gather(work.scope, self.splits, self.ids))

    @property
    def longest(self) -> Value:
        """The maximum length."""
        operands = [self.lengths, self._work.number([0])]
        return self._work.scope.emit("REDUCE_MAX", operands, (), keep_dims=False)

    def _part(self, splits: Value, start: int) -> Value:
        """Return all splits except the last one (``start`` 0) or the first one (``start`` 1)."""
        work = self._work
        (size,) = work.sizes(splits)
        operands = [splits, work.number([start]), work.joined([work.sub(size, 1)])]
        shape = (-1 if size.data is None else int(size.data) - 1,)
        return work.scope.emit("SLICE", operands, shape)

    def _sums(self, value: Value) -> Value:
        operands, emit = [value, self._work.number(np.array(0))], self._work.scope.emit
        return emit("CUMSUM", operands, value.shape, exclusive=False, reverse=False)


def _rows_of_ids(work: IndexArithmetic, ids: Value, count: Value) -> _Rows:
    ones = filled(work.scope, ids, np.int32(1))
    return _Rows(work, lengths=combined(work.scope, "Sum", ones, ids, count))
