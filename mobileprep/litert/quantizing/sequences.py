"""LSTM over whole sequences in integers.

Source: LiteRT's ``unidirectional_sequence_lstm.cc``: activations in int8, cell states in int16 with
a scale that is a power of 2, one scale for each weight matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Quantization
from mobileprep.litert.program import Op, Program, Readers, Value
from mobileprep.litert.quantizing.kernels import (
    IntegerSteps,
    Range,
    quantized_bias,
    span_of,
    steps_of,
    union,
)
from mobileprep.litert.weights import quantized_weights
from mobileprep.transforms.quantize_nodes import WeightSettings

SEQUENCE: Final = "UNIDIRECTIONAL_SEQUENCE_LSTM"
_NODES: Final = ("UnidirectionalSequenceLSTM", "UnidirectionalSequenceRNN")
_INPUTS, _RECURRENT, _PEEPHOLES = range(1, 5), range(5, 9), range(9, 12)
_BIASES, _PROJECTION, _PROJECTION_BIAS = range(12, 16), 16, 17
HIDDEN, STATE = 18, 19
"""The inputs with the output and the cell state of the previous step, which are variables."""
_GATE_SCALE: Final = 2.0**-12
_GATES: Final = 4
_TENSOR: Final = WeightSettings(8, "tensor")
_LARGEST: Final = 32767


def is_state_op(op: Op) -> bool:
    """Return whether an operator only sets or reads the state of a sequence operator."""
    if op.node is None or op.node.op not in _NODES:
        return False
    return op.code not in (SEQUENCE, "UNIDIRECTIONAL_SEQUENCE_RNN", "STRIDED_SLICE")


def inner_ranges(op: Op) -> tuple[str, ...]:
    """Return the names of the tensors inside of an LSTM whose ranges determine scales.

    These are the cell states and, with a projection, the outputs before it.
    """
    assert op.node is not None
    names = [f"{op.node.name}:3"]
    if op.input_at(_PROJECTION) is not None:
        names.append(f"{op.node.name}:4")
    return tuple(names)


def with_first_states(program: Program, ranges: dict[str, Range]) -> dict[str, Range]:
    """Extend the ranges of outputs and cell states by those of the states before the first step."""
    readers = Readers(program)
    wider = dict(ranges)
    for op in program.ops:
        if op.code != SEQUENCE:
            continue
        for index, name in ((HIDDEN, op.outputs[0].name), (STATE, inner_ranges(op)[0])):
            maker = readers.maker(op.inputs[index], "TILE")
            span = None if maker is None else _span(maker.inputs[0], readers, ranges)
            if span is not None and name in ranges:
                wider[name] = union(ranges[name], span) or span
    return wider


def _span(value: Value | None, readers: Readers, ranges: Mapping[str, Range]) -> Range | None:
    """Return the range of the first value of a state; constants are added to zeros."""
    added = readers.maker(value, "ADD")
    constant = None if added is None else added.constant(1)
    if constant is not None:
        return span_of(constant)
    return None if value is None else ranges.get(value.name)


def hindrance(op: Op) -> str | None:
    """Return why an LSTM stays float, or None."""
    if op.option("fused_activation_function") != "TANH":
        return "LiteRT computes it in integers only with tanh"
    weights = [value.data for value in op.operands if value.data is not None]
    if not all(np.isfinite(array).all() for array in weights):
        return "its weights are not finite"
    return None


def state_steps(span: Range) -> IntegerSteps:
    """Return the quantization of cell states: int16 with a scale that is a power of 2."""
    most = max(abs(span[0]), abs(span[1]))
    power = math.ceil(math.log2(most)) if most > 0 else 0
    return IntegerSteps(DType.INT16, 2.0 ** (max(power, -1) - 15), 0)


def integer_lstm(
    op: Op,
    image: Value,
    result: Value,
    ranges: Mapping[str, Range],
    variable: Callable[[Value, IntegerSteps], Value],
) -> Op:
    """Return an LSTM in integers.

    Args:
        op: the LSTM in float.
        image: its input in int8.
        result: its output in int8.
        ranges: the ranges of tensors by name.
        variable: returns the integer form of a state.
    """
    inputs = list(op.inputs)
    inputs[0] = image
    scale, steps = _scale(image), _steps(result)
    state, *hidden = (ranges[name] for name in inner_ranges(op))
    cells = state_steps(state)
    inner = steps_of(hidden[0], DType.INT8) if hidden else steps
    for index in (*_INPUTS, *_RECURRENT, _PROJECTION):
        inputs[index] = _weights(inputs[index])
    for index in _PEEPHOLES:
        inputs[index] = _peephole(inputs[index])
    for gate, index in enumerate(_BIASES):
        weights = inputs[_INPUTS[gate]]
        inputs[index] = _bias(inputs[index], scale, weights)
    inputs[_PROJECTION_BIAS] = _bias(inputs[_PROJECTION_BIAS], inner.scale, inputs[_PROJECTION])
    previous, before = inputs[HIDDEN], inputs[STATE]
    assert previous is not None
    assert before is not None
    inputs[HIDDEN], inputs[STATE] = variable(previous, steps), variable(before, cells)
    gates = [IntegerSteps(DType.INT16, _GATE_SCALE, 0)] * _GATES
    named = [*((f"gate_{i}", gate) for i, gate in enumerate(gates)), ("hidden", inner)]
    tensors = tuple(
        Value(f"{result.name}_{name}", s.kind, (0,), None, s.quantization) for name, s in named
    )
    return replace(op, inputs=tuple(inputs), outputs=(result,), intermediates=tensors)


def _scale(value: Value) -> float:
    assert value.quantization is not None
    return float(value.quantization.scales[0])


def _steps(value: Value) -> IntegerSteps:
    assert value.quantization is not None
    return IntegerSteps(DType.INT8, _scale(value), int(value.quantization.zero_points[0]))


def _weights(value: Value | None) -> Value | None:
    if value is None or value.data is None:
        return value
    data, details = quantized_weights(value.data, 0, _TENSOR)
    return replace(value, dtype=DType.INT8, data=data, quantization=details)


def _peephole(value: Value | None) -> Value | None:
    """Return weights of the cell state in int16."""
    if value is None or value.data is None:
        return value
    largest = float(np.abs(value.data).max(initial=0)) or 1.0
    scale = np.float32(largest / _LARGEST)
    data = np.rint(value.data / scale).astype(np.int16)
    details = Quantization(np.array([scale], np.float32), np.zeros(1, np.int64))
    return replace(value, dtype=DType.INT16, data=data, quantization=details)


def _bias(value: Value | None, scale: float, weights: Value | None) -> Value | None:
    """Return a bias in int32, with the scale of the sums that it is added to."""
    if value is None or value.data is None or weights is None or weights.quantization is None:
        return value
    data, details = quantized_bias(value.data, scale, weights.quantization, DType.INT32)
    return replace(value, dtype=DType.INT32, data=data, quantization=details)
