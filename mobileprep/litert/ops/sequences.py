"""Sequences, buckets, and sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.node import Node
from mobileprep.litert.arithmetic import Arithmetic
from mobileprep.litert.integers import IndexArithmetic
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.registry import lowering
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import as_int32, reshaped, transposed
from mobileprep.litert.types import LONG_NUMBERS, need, need_float

_INDICES: Final = frozenset({DType.INT32, DType.INT64})


@lowering("ReverseSequence")
def reverse_sequence(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """REVERSE_SEQUENCE."""
    need(node, inputs[:1], LONG_NUMBERS | {DType.INT16, DType.UINT8})
    need(node, inputs[1:], _INDICES)
    return scope.emit(
        "REVERSE_SEQUENCE",
        inputs,
        scope.output_shape(node),
        inputs[0].dtype,
        "ReverseSequenceOptions",
        seq_dim=node.attr_int("seq_dim"),
        batch_dim=node.attr_int("batch_dim", 0),
    )


@lowering("Bucketize")
def bucketize(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """BUCKETIZE."""
    need(node, inputs, LONG_NUMBERS | {DType.DOUBLE})
    return scope.emit(
        "BUCKETIZE",
        inputs,
        inputs[0].shape,
        DType.INT32,
        "BucketizeOptions",
        boundaries=node.attr_floats("boundaries", ()),
    )


@lowering("BroadcastArgs")
def broadcast_args(scope: Scope, node: Node, inputs: Sequence[Value]) -> Value:
    """BROADCAST_ARGS."""
    need(node, inputs, _INDICES)
    return scope.emit("BROADCAST_ARGS", inputs, scope.output_shape(node), inputs[0].dtype)


@lowering("CTCGreedyDecoder")
def ctc_greedy_decoder(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """ARG_MAX of each step, and WHERE of the steps that count."""
    need_float(node, inputs[:1])
    scores, lengths = inputs[0], as_int32(scope, node, 1, inputs[1])
    whole, work = IndexArithmetic(scope), Arithmetic(scope)
    ints = Arithmetic(scope, DType.INT32)
    steps, batch, classes = whole.sizes(scores)
    if classes.data is None:
        reason = "the number of its classes is not known"
        raise CannotExpressError(reason, GIVE_SHAPES)
    scores = transposed(scope, scores, (1, 0, 2))
    table, shape = "ArgMaxOptions", (scores.shape or ())[:2]
    given = [scores, whole.number(np.array(2))]
    best = scope.emit("ARG_MAX", given, shape, DType.INT32, table, output_type="INT32")
    step = whole.range(steps)
    is_read = whole.less(step, whole.reshaped(lengths, (-1, 1)))
    blank = node.attr_int("blank_index", -1) % int(classes.data)
    left_out = ints.compare("EQUAL", best, blank)
    if node.attr_bool("merge_repeated", False):
        places = {"axis": 1, "batch_dims": 0}
        given = [best, whole.maximum(whole.sub(step, 1), 0)]
        before = scope.emit("GATHER", given, shape, DType.INT32, "GatherOptions", **places)
        repeated = whole.both(ints.compare("EQUAL", best, before), whole.less(0, step))
        left_out = whole.either(left_out, repeated)
    kept = scope.emit("LOGICAL_NOT", [left_out], shape, DType.BOOL, "LogicalNotOptions")
    kept = whole.both(is_read, kept)
    found = scope.emit("WHERE", [kept], (-1, 2), DType.INT64, "WhereOptions")
    marks = work.cast(kept, DType.INT32)
    sums = {"exclusive": True, "reverse": False}
    given = [marks, whole.number(np.array(1))]
    numbers = scope.emit("CUMSUM", given, shape, DType.INT32, "CumsumOptions", **sums)
    given, options = [found, whole.number(np.array(0))], {"axis": 1, "batch_dims": 0}
    rows = [scope.emit("GATHER", given, (-1,), DType.INT64, "GatherOptions", **options)]
    for value in (numbers, best):
        taken = scope.emit("GATHER_ND", [value, found], (-1,), DType.INT32, "GatherNdOptions")
        rows.append(work.cast(taken, DType.INT64))
    options = {"values_count": 2, "axis": 1}
    indices = scope.emit("PACK", rows[:2], (-1, 2), DType.INT64, "PackOptions", **options)
    longest = whole.reshaped(ints.reduce("REDUCE_MAX", ints.reduce("SUM", marks, 1), 0), ())
    dense = work.cast(whole.joined([batch, longest]), DType.INT64)
    largest = work.reduce("REDUCE_MAX", scores, 2)
    largest = reshaped(scope, largest, shape) if shape.count(-1) < 2 else _squeezed(scope, largest)
    read = work.select(is_read, largest, 0.0)
    return indices, rows[2], dense, work.one("NEG", work.reduce("SUM", read, 1))


def _squeezed(scope: Scope, value: Value) -> Value:
    shape, options = (value.shape or ())[:-1], {"squeeze_dims": (-1,)}
    return scope.emit("SQUEEZE", [value], shape, value.dtype, "SqueezeOptions", **options)
