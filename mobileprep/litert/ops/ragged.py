"""Ragged tensors: rows of different lengths, as row splits and the values of all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.arithmetic import Arithmetic, filled
from mobileprep.litert.integers import IndexArithmetic
from mobileprep.litert.ops.math import repeated
from mobileprep.litert.ops.segments import combined, joined
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_int32, reshaped
from mobileprep.litert.types import NUMBERS, need

_FIRST: Final = b"FIRST_DIM_SIZE"
_IDS: Final = b"VALUE_ROWIDS"


@lowering("RaggedRange")
def ragged_range(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """The lengths of all rows, and for each number the start of its row and its place there."""
    need(node, inputs, NUMBERS)
    start, limit, delta = inputs
    whole, work = IndexArithmetic(scope), Arithmetic(scope, start.dtype)
    if start.dtype is DType.FLOAT:
        count = work.one("CEIL", work.div(work.sub(limit, start), delta))
        count = work.cast(count, DType.INT32)
    else:
        count = whole.sub(0, whole.floor_div(whole.sub(start, limit), delta))
    rows = _Rows(whole, lengths=whole.maximum(whole.reshaped(count, (-1,)), 0))
    first, step = (
        value if value.shape == () else rows.gathered(value, rows.ids) for value in (start, delta)
    )
    places = work.cast(rows.places, start.dtype)
    splits = work.cast(rows.splits, node.attr_dtype("Tsplits", DType.INT64))
    return splits, work.add(first, work.mul(places, step))


@lowering("RaggedGather")
def ragged_gather(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """GATHER of the splits of each level, and of the values."""
    *nested, values, indices = inputs
    if indices.rank != 1:
        reason = "the rank of its indices is not known to be 1"
        raise CannotExpressError(reason, "gather by a vector of indices")
    whole, kind = IndexArithmetic(scope), nested[0].dtype
    chosen = as_int32(scope, node, len(inputs) - 1, indices)
    result = []
    for i in range(len(nested)):
        known = _Rows(whole, splits=as_int32(scope, node, i, nested[i]))
        rows = _Rows(whole, lengths=known.gathered(known.lengths, chosen))
        starts = known.gathered(known.splits, chosen)
        result.append(Arithmetic(scope).cast(rows.splits, kind))
        chosen = whole.add(rows.gathered(starts, rows.ids), rows.places)
    return *result, known.gathered(values, chosen)


@lowering("RaggedTensorToTensor")
def ragged_to_dense(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """For each place of the result the number of its value, by UNSORTED_SEGMENT_MAX, and GATHER."""
    wanted, values, default = inputs[:3]
    if values.shape is None or wanted.shape is None or -1 in values.shape[1:]:
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
    if wanted.shape:
        asked = as_int32(scope, node, 0, wanted)
        elements = [whole.element(asked, i) for i in range(len(sizes))]
        sizes = [
            whole.select(whole.less(given, 0), size, given)
            for given, size in zip(elements, sizes, strict=True)
        ]
    place, cells = whole.range(whole.sizes(levels[0].splits)[0]), sizes[0]
    place = whole.select(whole.less(place, sizes[0]), place, whole.number(-1))
    for rows, size in zip(levels, sizes[1:], strict=True):
        parent = rows.gathered(place, rows.ids)
        is_kept = whole.both(whole.less(-1, parent), whole.less(rows.places, size))
        inside = whole.add(whole.mul(parent, size), rows.places)
        place = whole.select(is_kept, inside, whole.number(-1))
        cells = whole.mul(cells, size)
    (total,) = whole.sizes(place)
    numbers = whole.add(whole.range(total), 1)
    source = whole.maximum(combined(scope, "Max", numbers, place, cells), 0)
    inner = values.shape[1:]
    first = reshaped(scope, repeated(scope, default, inner), (1, *inner))
    found = levels[0].gathered(joined(scope, [first, values]), source)
    return whole.shaped(found, [*sizes, *map(whole.number, map(np.array, inner))])


class _Rows:
    """Rows of different lengths.

    Args:
        work: emits operators.
        lengths: the length of each row, if ``splits`` are not given.
        splits: 0, and the sum of the lengths up to each row.
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
        total = self.gathered(self.splits, work.sub(last, 1))
        one = filled(work.scope, ends, np.int32(1))
        # Of the rows, as many have ended before each value as its row's number tells.
        ended = self._sums(combined(work.scope, "Sum", one, ends, work.add(total, 1)))
        bounds = [work.number([0]), work.joined([total])]
        given = [ended, *bounds]
        self.ids = work.scope.emit("SLICE", given, (-1,), DType.INT32, "SliceOptions")
        self.places = work.sub(work.range(total), self.gathered(self.splits, self.ids))

    @property
    def longest(self) -> Value:
        """The largest length."""
        given, options = [self.lengths, self._work.number([0])], {"keep_dims": False}
        emit, table = self._work.scope.emit, "ReducerOptions"
        return emit("REDUCE_MAX", given, (), DType.INT32, table, **options)

    def gathered(self, value: Value, indices: Value) -> Value:
        """Elements of a tensor of any type along its first axis."""
        shape = (*(indices.shape or ()), *(value.shape or ())[1:])
        options = {"axis": 0, "batch_dims": 0}
        given, emit = [value, indices], self._work.scope.emit
        return emit("GATHER", given, shape, value.dtype, "GatherOptions", **options)

    def _part(self, splits: Value, start: int) -> Value:
        """All splits but the last one, or all but the first one."""
        work = self._work
        (size,) = work.sizes(splits)
        given = [splits, work.number([start]), work.joined([work.sub(size, 1)])]
        shape = (-1 if size.data is None else int(size.data) - 1,)
        return work.scope.emit("SLICE", given, shape, DType.INT32, "SliceOptions")

    def _sums(self, value: Value) -> Value:
        axis, options = self._work.number(np.array(0)), {"exclusive": False, "reverse": False}
        given, emit = [value, axis], self._work.scope.emit
        return emit("CUMSUM", given, value.shape, DType.INT32, "CumsumOptions", **options)


def _rows_of_ids(work: IndexArithmetic, ids: Value, count: Value) -> _Rows:
    ones = filled(work.scope, ids, np.int32(1))
    return _Rows(work, lengths=combined(work.scope, "Sum", ones, ids, count))
