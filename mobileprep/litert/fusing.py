"""Biases and activations into the operator before them, and what cancels out dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from mobileprep.formats.tflite.records import Options
from mobileprep.litert.expansions import expanded
from mobileprep.litert.patterns import with_builtins
from mobileprep.litert.program import Op, Program, Readers, Value
from mobileprep.litert.transposes import without_inverse_transposes

ACTIVATIONS: Final[Mapping[str, str]] = {
    "RELU": "RELU",
    "RELU6": "RELU6",
    "RELU_N1_TO_1": "RELU_N1_TO_1",
}
"""Operators that others can do at once, and what the option is called then."""

# Operators with a bias: the place of weights and of the bias, and the axis of output channels.
_BIASED: Final[Mapping[str, int]] = {
    "CONV_2D": 0,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 0,
}
_ACTIVE: Final = frozenset(
    {
        *_BIASED,
        *("ADD", "SUB", "MUL", "DIV", "MAX_POOL_2D", "AVERAGE_POOL_2D"),
        *("CONV_3D",),
    }
)
_OPTION: Final = "fused_activation_function"


def fused(program: Program) -> Program:
    """The program with every fusion done, and without operators that nobody reads."""
    for step in _STEPS:
        program = step(program)
    return program


def _with_biases(program: Program) -> Program:
    """Additions of one constant a channel, as the bias of the layer before them."""
    uses = Readers(program)
    replaced: dict[Op, Op | None] = {}
    for op in program.ops:
        if op.code == "ADD" and _plain(op):
            _merge_bias(op, uses, replaced)
    return _replaced(program, replaced)


def _merge_bias(total: Op, uses: Readers, replaced: dict[Op, Op | None]) -> None:
    for value, other in (total.inputs, total.inputs[::-1]):
        layer = uses.maker(value)
        if layer is None or value is None or other is None or other.data is None:
            continue
        if layer.code not in _BIASED or not uses.once(value) or layer in replaced:
            continue
        bias = _sum_of_biases(layer, other)
        if bias is not None and _plain(layer):
            inputs = (*layer.inputs[:2], bias)
            # It stays where the layer was: nothing of the sum is computed later.
            replaced[layer] = replace(layer, inputs=inputs, outputs=total.outputs)
            replaced[total] = None
            return


def _sum_of_biases(layer: Op, added: Value) -> Value | None:
    """The layer's bias with a constant added; None where it is not one value a channel."""
    weights, before = layer.inputs[1], layer.inputs[2] if len(layer.inputs) > 2 else None
    if weights is None or weights.shape is None or added.data is None:
        return None
    channels = weights.shape[_BIASED[layer.code]]
    rank = layer.outputs[0].rank
    if rank is None or added.data.ndim > rank or added.data.dtype != np.float32:
        return None
    if added.data.size != 1 and added.data.shape[-1] != added.data.size:
        return None
    if added.data.size not in (1, channels):
        return None
    values = np.broadcast_to(added.data.reshape(-1), (channels,))
    if before is not None and before.data is not None and before.data.any():
        values = (values + before.data).astype(np.float32)
    elif before is not None and before.data is None:
        return None
    data = np.ascontiguousarray(values)
    return replace(added, shape=data.shape, data=data)


def _with_activations(program: Program) -> Program:
    uses = Readers(program)
    replaced: dict[Op, Op | None] = {}
    for op in program.ops:
        if op.code not in ACTIVATIONS or op.inputs[0] is None:
            continue
        layer = uses.maker(op.inputs[0])
        if layer is None or layer.code not in _ACTIVE or layer in replaced:
            continue
        if uses.once(op.inputs[0]) and _plain(layer) and _is_float(op):
            options = layer.options or Options("")
            values = {**options.values, _OPTION: ACTIVATIONS[op.code]}
            done = replace(layer, outputs=op.outputs, options=replace(options, values=values))
            replaced[layer], replaced[op] = done, None
    return _replaced(program, replaced)


def _is_float(op: Op) -> bool:
    return op.outputs[0].dtype.is_floating


def _plain(op: Op) -> bool:
    """Whether an operator has no activation yet."""
    return op.options is None or op.options.values.get(_OPTION, "NONE") == "NONE"


def _replaced(program: Program, replaced: Mapping[Op, Op | None]) -> Program:
    ops = (replaced.get(op, op) for op in program.ops)
    return program.with_ops([op for op in ops if op is not None])


def _without_unread(program: Program) -> Program:
    """Operators whose outputs somebody reads."""
    read = {port.value for port in program.outputs}
    kept = []
    for op in reversed(program.ops):
        if any(value in read for value in op.outputs):
            read.update(value for value in op.inputs if value is not None)
            kept.append(op)
    return program.with_ops(kept[::-1])


_STEPS: Final[tuple[Callable[[Program], Program], ...]] = (
    with_builtins,
    expanded,
    without_inverse_transposes,
    _without_unread,
    _with_biases,
    _with_activations,
    _without_unread,
)
