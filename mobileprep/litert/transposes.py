"""Transpositions moved behind what works element by element, to where they cancel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from mobileprep.litert.program import Op, Port, Program, Readers, Value
from mobileprep.litert.shapes import permuted

_ONE: Final = (
    *("RELU", "RELU6", "ELU", "LOGISTIC", "TANH", "LEAKY_RELU", "HARD_SWISH", "ABS", "NEG"),
    *("EXP", "LOG", "SQRT", "RSQRT", "SQUARE", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "CAST"),
)
_TWO: Final = ("ADD", "SUB", "MUL", "DIV", "MINIMUM", "MAXIMUM")
# How many of their inputs are tensors of the shape that is transposed; None for all.
_MOVABLE: Final[Mapping[str, int | None]] = {
    **dict.fromkeys(_ONE, 1),
    **dict.fromkeys(_TWO, 2),
    "CONCATENATION": None,
    "PAD": 1,
}
# Each round moves every transposition behind one operator.
_MOST_ROUNDS: Final = 10_000


def without_inverse_transposes(program: Program) -> Program:
    """Move transpositions down, and drop those that undo each other."""
    for _ in range(_MOST_ROUNDS):
        after = _cancelled(_moved(program))
        if after is program:
            return program
        program = after
    return program


def rewritten(program: Program, ops: list[Op], same: Mapping[Value, Value]) -> Program:
    """A program with other operators, in which some values stand for others.

    Args:
        program: the program before.
        ops: its operators now.
        same: for each value that is gone the one in its place.
    """

    def final(value: Value) -> Value:
        while value in same:
            value = same[value]
        return value

    if not same:
        return program.with_ops(ops)
    changed = [
        replace(op, inputs=tuple(None if v is None else final(v) for v in op.inputs))
        if any(v in same for v in op.inputs if v is not None)
        else op
        for op in ops
    ]
    outputs = tuple(Port(p.name, final(p.value)) for p in program.outputs)
    return Program(program.inputs, outputs, tuple(changed), program.name)


def _order(op: Op | None) -> tuple[int, ...] | None:
    """The permutation of a transposition; None of anything else."""
    if op is None or op.code != "TRANSPOSE" or op.inputs[1] is None or op.inputs[1].data is None:
        return None
    return tuple(int(i) for i in op.inputs[1].data)


def _cancelled(program: Program) -> Program:
    """Without pairs of transpositions whose result is what went in."""
    readers = Readers(program)
    same: dict[Value, Value] = {}
    for op in program.ops:
        order = _order(op)
        before = None if order is None else readers.maker(op.inputs[0])
        first = _order(before)
        if order is None or first is None or before is None or before.inputs[0] is None:
            continue
        if len(first) == len(order) and [first[i] for i in order] == list(range(len(order))):
            same[op.outputs[0]] = before.inputs[0]
    if not same:
        return program
    ops = [op for op in program.ops if op.outputs[0] not in same]
    return rewritten(program, ops, same)


def _moved(program: Program) -> Program:
    """Each transposition that one operator alone reads, behind that operator."""
    readers = Readers(program)
    ops: list[Op] = []
    changed = False
    for op in program.ops:
        order = _common_order(op, readers)
        if order is None:
            ops.append(op)
            continue
        changed = True
        ops += _behind(op, order, readers)
    return program.with_ops(_read(ops, program)) if changed else program


def _common_order(op: Op, readers: Readers) -> tuple[int, ...] | None:
    """The order in which all inputs of an operator are transposed, where it may come later."""
    if op.code not in _MOVABLE:
        return None
    rank, orders = op.outputs[0].rank, set()
    for value in op.inputs[: _MOVABLE[op.code]]:
        order = None if value is None else _order(readers.maker(value))
        own = value is not None and readers.counts[value] == op.inputs.count(value)
        if order is not None and own:
            orders.add(order)
        elif value is None or value.data is None or rank is None or value.data.ndim > rank:
            return None
    found = orders.pop() if len(orders) == 1 else None
    if op.code == "PAD" and (op.inputs[1] is None or op.inputs[1].data is None):
        return None
    return found if found is not None and len(found) == rank else None


def _behind(op: Op, order: tuple[int, ...], readers: Readers) -> list[Op]:
    """An operator on what was transposed, and the transposition of its result."""
    inverse = tuple(int(i) for i in np.argsort(order))
    inputs: list[Value | None] = []
    turning: Op | None = None
    for value in op.inputs[: _MOVABLE[op.code]]:
        maker = readers.maker(value)
        if maker is not None and _order(maker) == order:
            inputs.append(maker.inputs[0])
            turning = maker
        else:
            inputs.append(_turned(value, inverse))
    assert turning is not None
    (output,) = op.outputs
    shape = permuted(output.shape, inverse)
    name, alike = f"{output.name}_untransposed", output.alike or output.name
    inner = replace(output, name=name, shape=shape, alike=alike)
    done = replace(_along(op, order), inputs=(*inputs, *_amounts(op, inverse)))
    back = replace(turning, inputs=(inner, turning.inputs[1]), outputs=(output,))
    return [replace(done, outputs=(inner,)), back]


def _along(op: Op, order: tuple[int, ...]) -> Op:
    """A concatenation along the dimension that was its own before the transposition."""
    if op.code != "CONCATENATION" or op.options is None:
        return op
    axis = op.options.values.get("axis", 0)
    assert isinstance(axis, int)
    values = {**op.options.values, "axis": order[axis % len(order)]}
    return replace(op, options=replace(op.options, values=values))


def _amounts(op: Op, inverse: tuple[int, ...]) -> tuple[Value, ...]:
    """The paddings of each dimension, in the order before the transposition."""
    amounts = op.inputs[1] if op.code == "PAD" else None
    if amounts is None or amounts.data is None:
        return ()
    return (replace(amounts, data=np.ascontiguousarray(amounts.data[list(inverse)])),)


def _turned(value: Value | None, order: tuple[int, ...]) -> Value | None:
    """A constant with its dimensions in another order, where it has more than one number."""
    if value is None or value.data is None or value.data.size == 1:
        return value
    full = value.data.reshape((1,) * (len(order) - value.data.ndim) + value.data.shape)
    data = np.ascontiguousarray(np.transpose(full, order))
    return replace(value, shape=data.shape, data=data)


def _read(ops: list[Op], program: Program) -> list[Op]:
    """Without transpositions that nobody reads any more."""
    counts = Readers(program.with_ops(ops)).counts
    return [op for op in ops if op.code != "TRANSPOSE" or counts.get(op.outputs[0])]
