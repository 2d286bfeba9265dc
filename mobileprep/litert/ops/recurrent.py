"""LSTM and RNN over whole sequences.

The operators keep their state in variables between runs. Each run sets the variables first, so
that it starts from the state of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.litert.program import Op, Program, Value, builtin
from mobileprep.litert.recurrent_loops import is_zero
from mobileprep.litert.scope import ACTIVATION, Scope, lowering
from mobileprep.litert.types import need_float

# Operators whose output's size depends on operands, from the given index on, unless these are
# constants; None for those whose size is never known before a run.
_SIZED_BY: Final[Mapping[str, int | None]] = {
    **dict.fromkeys(("WHILE", "IF", "WHERE", "UNIQUE", "CUSTOM", "CALL_ONCE", "HASHTABLE_FIND")),
    **dict.fromkeys(("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "SEGMENT_SUM")),
    **dict.fromkeys(("FILL", "RANGE", "RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"), 0),
    **dict.fromkeys(("RESHAPE", "SLICE", "STRIDED_SLICE", "PAD", "PADV2", "MIRROR_PAD", "TILE"), 1),
    **dict.fromkeys(("BROADCAST_TO", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "ONE_HOT"), 1),
    **dict.fromkeys(("TOPK_V2", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND", "SCATTER_ND"), 1),
    **dict.fromkeys(("TRANSPOSE", "EXPAND_DIMS", "SPARSE_TO_DENSE", "MULTINOMIAL"), 1),
    **dict.fromkeys(("UNSORTED_SEGMENT_SUM", "UNSORTED_SEGMENT_MAX", "UNSORTED_SEGMENT_MIN"), 2),
}


@lowering("UnidirectionalSequenceLSTM")
def sequence_lstm(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    need_float(inputs[:3])
    x, hidden, state = inputs[:3]
    weights = [_constant(value) for value in inputs[3:]]
    kernel, recurrent, bias, peepholes, projection, projection_bias = weights
    has_projection = projection.size > 0
    operands = [
        x,
        *_gates(scope, "input", kernel.T, 4),
        *_gates(scope, "recurrent", recurrent.T, 4),
        *(
            _optional(scope, "peepholes", row)
            for row in (peepholes if peepholes.size else [None] * 3)
        ),
        *_gates(scope, "bias", bias, 4),
        _optional(scope, "projection", projection.T if has_projection else None),
        _optional(scope, "projection_bias", projection_bias if has_projection else None),
        _variable(scope, node, 1, hidden, x),
        _variable(scope, node, 2, state, x),
        *[None] * 4,
    ]
    rows = scope.emit(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        operands,
        scope.output_shape(node),
        fused_activation_function=node.attr_str("activation").upper(),
        cell_clip=node.attr_float("cell_clip", 0.0),
        proj_clip=node.attr_float("projection_clip", 0.0),
        time_major=True,
    )
    last = _last(scope, rows)
    changed = operands[19]
    assert changed is not None
    return rows, _after(scope, changed, last), last


@lowering("UnidirectionalSequenceRNN")
def sequence_rnn(scope: Scope, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
    need_float(inputs[:2])
    x, hidden = inputs[:2]
    kernel, recurrent, bias = (_constant(value) for value in inputs[2:])
    operands = [
        x,
        scope.constant(np.ascontiguousarray(kernel.T), "input_weights"),
        scope.constant(np.ascontiguousarray(recurrent.T), "recurrent_weights"),
        scope.constant(bias, "bias"),
        _variable(scope, node, 1, hidden, x),
    ]
    rows = scope.emit(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        operands,
        scope.output_shape(node),
        time_major=True,
        **{ACTIVATION: node.attr_str("activation").upper()},
    )
    last = _last(scope, rows)
    return rows, last, last


def has_unsafe_states(program: Program) -> bool:
    """Return whether a runtime would handle the memory of a state of open size wrongly.

    It reserves the memory of variables before it runs the first operator whose output's size it
    does not know, with the sizes in the file, and does not reserve more later. Delegates move
    operators, so each such operator may be the first, unless it depends on the variable. If the
    size of a variable changes, runtimes lose constants that a DEQUANTIZE computed before.
    """
    values = [value for op in program.ops for value in op.outputs]
    states = [v for v in values if v.is_variable and -1 in (v.shape or (-1,))]
    if states and any(op.code == "DEQUANTIZE" and op.constant(0) is not None for op in program.ops):
        return True
    for state in states:
        behind = {state}
        for op in program.ops:
            if not behind.isdisjoint(op.operands):
                behind.update(op.outputs)
            elif _is_sized_late(op):
                return True
    return False


def _is_sized_late(op: Op) -> bool:
    if op.code == "TOPK_V2" and -1 in (op.operands[0].shape or (-1,)):
        return True
    if op.code not in _SIZED_BY:
        return False
    start = _SIZED_BY[op.code]
    if start is None:
        return True
    sizes = op.operands[start:]
    if op.code == "SLICE":
        return any(value.data is None or (value.data < 0).any() for value in sizes)
    return any(value.data is None and value.dtype is not DType.FLOAT for value in sizes)


def _constant(value: Value) -> Array:
    assert value.data is not None
    return value.data


def _gates(scope: Scope, what: str, values: Array, count: int) -> list[Value]:
    """Return the weights of each gate, which are consecutive rows."""
    return [
        scope.constant(np.ascontiguousarray(part), f"{what}_weights")
        for part in np.split(values, count)
    ]


def _optional(scope: Scope, what: str, values: Array | None) -> Value | None:
    return None if values is None else scope.constant(np.ascontiguousarray(values), what)


def _last(scope: Scope, rows: Value) -> Value:
    """Return the last row of ``[time, batch, width]``."""
    shape = None if rows.shape is None else rows.shape[1:]
    bounds = [
        scope.integers_constant(values, "bounds") for values in ([-1, 0, 0], [0] * 3, [1] * 3)
    ]
    return scope.emit(
        "STRIDED_SLICE", [rows, *bounds], shape, begin_mask=6, end_mask=7, shrink_axis_mask=1
    )


def _after(scope: Scope, changed: Value, last: Value) -> Value:
    """Return the content of a variable after the operator that computes ``last``.

    Runtimes order operators by the tensors that they read, and a delegate may move an operator that
    only reads the variable before the one that changes it.
    """
    is_chosen = scope.constant(np.ones((1, 1), np.bool_), "chosen")
    batch = (last.shape or (-1,))[0]
    bounds = [scope.integers_constant(values, "bounds") for values in ([0, 0], [0, 1], [1, 1])]
    column = scope.emit("STRIDED_SLICE", [last, *bounds], (batch, 1), begin_mask=1, end_mask=1)
    return scope.emit("SELECT_V2", [is_chosen, changed, column], changed.shape, DType.FLOAT)


def _variable(scope: Scope, node: Node, index: int, first: Value, x: Value) -> Value:
    """Return a variable that each run sets to its first value."""
    shape = first.shape
    target = Value("", DType.FLOAT, shape, is_variable=True)
    if is_zero(scope.graph, node.data_inputs[index]):
        scope.ops.append(Op("ZEROS_LIKE", (_like(scope, first, x),), (target,)))
        return target
    if first.data is not None:
        # Runtimes compute operators on constants once; the variable must be set in each run.
        zeros = scope.emit_plain("ZEROS_LIKE", first, shape)
        first = scope.emit("ADD", [zeros, first], shape)
    ones = scope.integers_constant([1] * len(shape or ()), "ones")
    scope.ops.append(builtin("TILE", [first, ones], [target]))
    return target


def _like(scope: Scope, first: Value, x: Value) -> Value:
    """Return a tensor with the shape of a state; its size is known before a run."""
    if first.data is not None or -1 not in (first.shape or ()):
        zeros = np.zeros(first.shape or (), np.float32)
        return first if first.data is not None else scope.constant(zeros, "zeros")
    # The size of a SLICE that ends with the batch is only known in a run.
    bounds = [scope.integers_constant(values, "bounds") for values in ([0] * 3, [1, 0, 1], [1] * 3)]
    column = scope.emit(
        "STRIDED_SLICE", [x, *bounds], (-1, 1), begin_mask=2, end_mask=2, shrink_axis_mask=1
    )
    width = (first.shape or (1,))[-1]
    return scope.emit(
        "ADD", [column, scope.constant(np.zeros((1, width), np.float32))], (-1, width)
    )
