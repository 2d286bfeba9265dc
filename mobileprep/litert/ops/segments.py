"""Rows combined by segment, counted, and sorted into parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.litert.arithmetic import Arithmetic, filled
from mobileprep.litert.integers import IndexArithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_int32, reshaped
from mobileprep.litert.types import LONG_NUMBERS, NAMES, NUMBERS, need, need_float

_UNSORTED: Final = {
    f"UnsortedSegment{kind}": f"UNSORTED_SEGMENT_{kind.upper()}"
    for kind in ("Sum", "Prod", "Max", "Min")
}
_SPARSE: Final = [
    f"SparseSegment{kind}{suffix}"
    for kind in ("Sum", "Mean", "SqrtN")
    for suffix in ("", "WithNumSegments")
]


@lowering("SegmentSum")
def segment_sum(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """SEGMENT_SUM, or UNSORTED_SEGMENT_SUM where constant segments have gaps."""
    need(node, inputs[:1], NUMBERS)
    values = [inputs[0], as_int32(scope, node, 1, inputs[1])]
    shape, kind = scope.output_shape(node), inputs[0].dtype
    steps = _steps(scope, node)
    if (steps <= 1).all():
        return scope.emit("SEGMENT_SUM", values, shape, kind, "SegmentSumOptions")
    # SEGMENT_SUM ends the run at a gap; those of computed segments are not known before.
    rows = int(steps.sum())
    return combined(scope, "Sum", values[0], values[1], scope.integers_constant(np.array(rows)))


def _steps(scope: Scope, node: Node) -> Array:
    """By how much each segment of constant ones is above the one before, the first above -1.

    Raises:
        ValueError: one is below the one before.
    """
    known = scope.known(node, 1)
    if known is None:
        return np.zeros(0, np.int64)
    steps = np.diff(known.reshape(-1).astype(np.int64), prepend=-1)
    if (steps < 0).any() or not steps[:1].all():
        message = "its segments are not in ascending order from 0 on"
        raise ValueError(message)
    return steps


@lowering(*_UNSORTED)
def unsorted_segments(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """A builtin on segments in any order."""
    need(node, inputs[:1], NUMBERS)
    values = [inputs[0], *(as_int32(scope, node, i, inputs[i]) for i in (1, 2))]
    shape, kind = scope.output_shape(node), inputs[0].dtype
    return scope.emit(_UNSORTED[node.op], values, shape, kind, f"{node.op}Options")


@lowering("SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd")
def segments(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """The builtin for unsorted segments, with 0 for maxima and minima of no rows."""
    data, kind = inputs[0], node.op.removeprefix("Segment")
    ids = as_int32(scope, node, 1, inputs[1])
    _steps(scope, node)
    count = _count(scope, ids)
    if kind == "Mean":
        need_float(node, [data])
        return _averaged(scope, data, ids, count)
    need(node, [data], NUMBERS)
    found = combined(scope, kind, data, ids, count)
    if kind == "Prod":
        return found
    rows = _row_counts(scope, data, ids, count)
    work = Arithmetic(scope, data.dtype)
    return work.select(Arithmetic(scope).compare("GREATER", rows, 0), found, 0)


@lowering(*_SPARSE)
def sparse_segments(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """GATHER of the rows, and UNSORTED_SEGMENT_SUM."""
    need(node, inputs[:1], NUMBERS)
    data, indices = inputs[:2]
    ids = as_int32(scope, node, 2, inputs[2])
    count = as_int32(scope, node, 3, inputs[3]) if len(inputs) > 3 else _count(scope, ids)
    shape = None if data.shape is None else (-1, *data.shape[1:])
    options = {"axis": 0, "batch_dims": 0}
    given = [data, indices]
    rows = scope.emit("GATHER", given, shape, data.dtype, "GatherOptions", **options)
    if node.op.startswith("SparseSegmentSum"):
        return combined(scope, "Sum", rows, ids, count)
    need_float(node, [data])
    return _averaged(scope, rows, ids, count, is_root="SqrtN" in node.op)


def _averaged(
    scope: Scope, rows: Value, ids: Value, count: Value, *, is_root: bool = False
) -> Value:
    """Sums by segment, divided by the number of rows or by its square root."""
    work = Arithmetic(scope)
    divisor = work.maximum(_row_counts(scope, rows, ids, count), 1)
    if is_root:
        divisor = work.one("SQRT", divisor)
    return work.div(combined(scope, "Sum", rows, ids, count), divisor)


def _row_counts(scope: Scope, rows: Value, ids: Value, count: Value) -> Value:
    """The number of rows of each segment as float32, with a size of 1 for each other axis."""
    if rows.rank is None:
        reason = "the rank of its data is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    ones = filled(scope, ids, np.float32(1))
    counts = combined(scope, "Sum", ones, ids, count)
    return reshaped(scope, counts, (-1, *(1,) * (rows.rank - 1)))


def _count(scope: Scope, ids: Value) -> Value:
    """The number of segments: the largest and 1 more."""
    if ids.data is not None:
        return scope.integers_constant(np.array(ids.data.max(initial=-1) + 1))
    axes = scope.integers_constant([0], "axes")
    options = {"keep_dims": False}
    last = scope.emit("REDUCE_MAX", [ids, axes], (), DType.INT32, "ReducerOptions", **options)
    return IndexArithmetic(scope).add(last, 1)


def combined(scope: Scope, kind: str, rows: Value, ids: Value, count: Value) -> Value:
    """UNSORTED_SEGMENT_SUM or one of its relatives.

    Args:
        scope: where operators are emitted.
        kind: ``Sum``, ``Prod``, ``Max``, or ``Min``.
        rows: what is combined.
        ids: the segment of each row; rows of a negative one are dropped.
        count: the number of segments, a scalar.
    """
    known = -1 if count.data is None else int(count.data)
    shape = None
    if rows.shape is not None and ids.rank is not None:
        shape = (known, *rows.shape[ids.rank :])
    op = f"UnsortedSegment{kind}"
    return scope.emit(_UNSORTED[op], [rows, ids, count], shape, rows.dtype, f"{op}Options")


@lowering("Bincount", "DenseBincount")
def bincount(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """UNSORTED_SEGMENT_SUM, or its maximum for a binary output, of ones or of weights."""
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
        need(node, [weights], NUMBERS)
    work = IndexArithmetic(scope)
    size = work.reshaped(as_int32(scope, node, 1, inputs[1]), ())
    # Numbers beyond the size do not count: they go to no segment.
    ids = work.select(work.less(numbers, size), numbers, work.number(-1))
    count = size
    if in_rows:
        rows = sizes[0]
        first = work.mul(work.number(np.arange(rows).reshape(-1, 1)), size)
        ids = work.select(work.less(numbers, size), work.add(numbers, first), work.number(-1))
        count = work.mul(size, rows)
    given = weights if is_weighted else filled(scope, numbers, np.int32(1))
    found = combined(scope, "Sum", given, ids, count)
    if is_binary:
        found = IndexArithmetic(scope).minimum(found, 1)
    found = Arithmetic(scope).cast(found, kind)
    return reshaped(scope, found, (sizes[0], -1)) if in_rows else found


_UNIQUE: Final = LONG_NUMBERS | {DType.INT16, DType.INT8, DType.UINT8}


@lowering("Unique", "UniqueV2")
def unique(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """UNIQUE."""
    _check_unique(scope, node, inputs)
    kind, value = node.attr_dtype("out_idx", DType.INT32), inputs[0]
    outputs = [(scope.output_shape(node), value.dtype), (value.shape, kind)]
    return scope.emit_many("UNIQUE", [value], outputs, "UniqueOptions", idx_out_type=NAMES[kind])


@lowering("UniqueWithCounts", "UniqueWithCountsV2")
def unique_with_counts(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """UNIQUE, and UNSORTED_SEGMENT_SUM of ones."""
    _check_unique(scope, node, inputs)
    kind, value = node.attr_dtype("out_idx", DType.INT32), inputs[0]
    outputs = [(scope.output_shape(node), value.dtype), (value.shape, DType.INT32)]
    options = {"idx_out_type": "INT32"}
    values, places = scope.emit_many("UNIQUE", [value], outputs, "UniqueOptions", **options)
    ones = filled(scope, places, np.int32(1))
    sizes = scope.emit("SHAPE", [values], (1,), DType.INT32, "ShapeOptions", out_type="INT32")
    counts = combined(scope, "Sum", ones, places, reshaped(scope, sizes, ()))
    work = Arithmetic(scope)
    return values, work.cast(places, kind), work.cast(counts, kind)


def _check_unique(scope: Scope, node: Node, inputs: Sequence[Value]) -> None:
    need(node, inputs[:1], _UNIQUE)
    if len(inputs) > 1 and scope.integers(node, 1, "axis") and inputs[0].rank != 1:
        reason = "it compares slices along an axis, and LiteRT compares elements of vectors"
        raise CannotExpressError(reason, "give a vector")


@lowering("InvertPermutation")
def invert_permutation(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """SCATTER_ND of the places."""
    work, kind = IndexArithmetic(scope), inputs[0].dtype
    order = as_int32(scope, node, 0, inputs[0])
    (size,) = work.sizes(order)
    column = work.reshaped(order, (-1, 1))
    given = [column, work.range(size), work.joined([size])]
    placed = scope.emit("SCATTER_ND", given, order.shape, DType.INT32, "ScatterNdOptions")
    return Arithmetic(scope).cast(placed, kind)


@lowering("DynamicPartition")
def dynamic_partition(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """For each part WHERE, and GATHER_ND of the rows."""
    data, parts = inputs[0], as_int32(scope, node, 1, inputs[1])
    result = []
    for i in range(node.attr_int("num_partitions")):
        chosen = Arithmetic(scope, DType.INT32).compare("EQUAL", parts, i)
        places = (-1, -1 if parts.rank is None else parts.rank)
        where = scope.emit("WHERE", [chosen], places, DType.INT64, "WhereOptions")
        shape, given = scope.output_shape(node, i), [data, where]
        result.append(scope.emit("GATHER_ND", given, shape, data.dtype, "GatherNdOptions"))
    return tuple(result)


@lowering("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """UNSORTED_SEGMENT_MAX of row numbers, as the last row wins, and GATHER of the rows."""
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
    options = {"axis": 0, "batch_dims": 0}
    # An index that no tensor has takes the first row.
    given = [rows, work.maximum(last, 0)]
    return scope.emit("GATHER", given, shape, rows.dtype, "GatherOptions", **options)


def joined(scope: Scope, parts: Sequence[Value]) -> Value:
    """Tensors one after another along the first axis."""
    if len(parts) == 1:
        return parts[0]
    known = [part.data for part in parts if part.data is not None]
    if len(known) == len(parts):
        return scope.constant(np.concatenate(known))
    lengths = [-1 if part.shape is None else part.shape[0] for part in parts]
    shape = (-1 if -1 in lengths else sum(lengths), *(parts[0].shape or (-1,))[1:])
    options = {"axis": 0}
    kind = parts[0].dtype
    return scope.emit("CONCATENATION", parts, shape, kind, "ConcatenationOptions", **options)
