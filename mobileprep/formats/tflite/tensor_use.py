"""Whether each tensor of a .tflite file is there by the time that it is read, and may be written.

LiteRT's interpreter takes that for granted: it reads where nothing is, or writes into the file's
constants, and ends the process. XNNPACK unpacks constants by the sizes that are declared.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from mobileprep.formats.tflite.records import LiteTensor, OperatorRecord, SubGraphRecord

_NONE: Final = -1
_UNPACKS: Final = frozenset({"DENSIFY", "DEQUANTIZE"})
_TOO_EARLY: Final = "before anything gives it"
# Of LSTM cells: the weights and bias of an input gate, peepholes, and a projection.
_CELL: Final = (1, 5, 9, 10, 11, 12, 16, 17)
_LSTM: Final = frozenset((*_CELL, 20, 21, 22, 23))
_OPTIONAL: Final[Mapping[str, Collection[int]]] = {
    **dict.fromkeys(("CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"), (2,)),
    **dict.fromkeys(("CONV_3D_TRANSPOSE", "SVDF", "TRANSPOSE_CONV"), (3,)),
    **dict.fromkeys(("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"), _LSTM),
    "BIDIRECTIONAL_SEQUENCE_LSTM": frozenset((*_CELL, *(17 + at for at in _CELL), *range(39, 48))),
    "BIDIRECTIONAL_SEQUENCE_RNN": (9, 10, 11),
}
"""Which inputs of an operator may be left out, by LiteRT's kernels."""
_ANY: Final = frozenset(
    {
        *("CALL", "CALL_ONCE", "CUSTOM", "IF", "WHILE"),
        *("STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "STABLEHLO_CUSTOM_CALL", "STABLEHLO_WHILE"),
    }
)
"""Operators that hand on what they are given, or of which nothing is known."""


def fault_of_tensor_use(graph: SubGraphRecord, buffers: Sequence[bytes | memoryview]) -> str | None:
    """What is wrong with a subgraph's operators, their order or inputs; None where nothing is.

    Args:
        graph: the subgraph.
        buffers: those of the file.
    """
    constants = {at for at, t in enumerate(graph.tensors) if len(buffers[t.buffer])}
    for at in graph.inputs:
        if at in constants:
            return f"the constant {graph.tensors[at].name!r} is an input"
    there = {at for at, tensor in enumerate(graph.tensors) if _is_from_the_start(tensor)}
    there |= constants | {_NONE, *graph.inputs}
    for number, operator in enumerate(graph.operators):
        lacking = _lacking(operator)
        if lacking is not None:
            return f"{_named(number, operator)} has no input {lacking}"
        for at in operator.inputs:
            if at not in there:
                return f"{_named(number, operator)} reads {graph.tensors[at].name!r} {_TOO_EARLY}"
        for at in operator.outputs:
            if at in constants:
                return f"{_named(number, operator)} writes the constant {graph.tensors[at].name!r}"
        if operator.code.builtin in _UNPACKS and not _is_same_size(graph, operator):
            return f"{_named(number, operator)} gives other sizes than it takes"
        there.update(operator.outputs)
    missing = next((at for at in graph.outputs if at not in there), None)
    return (
        None
        if missing is None
        else f"the output {graph.tensors[missing].name!r} is given by nothing"
    )


def _is_from_the_start(tensor: LiteTensor) -> bool:
    """Whether a tensor needs neither bytes of the file nor an operator that gives it."""
    return tensor.is_variable or math.prod(tensor.shape) == 0


def _lacking(operator: OperatorRecord) -> int | None:
    """The first input that is left out and must not be."""
    if _NONE not in operator.inputs or operator.code.builtin in _ANY:
        return None
    optional = _OPTIONAL.get(operator.code.builtin, ())
    left_out = (i for i, at in enumerate(operator.inputs) if at == _NONE)
    return next((i for i in left_out if i not in optional), None)


def _is_same_size(graph: SubGraphRecord, operator: OperatorRecord) -> bool:
    """Whether a tensor and what is made of it have as many elements, by the file."""
    taken = [graph.tensors[at].shape for at in operator.inputs[:1] if at != _NONE]
    given = [graph.tensors[at].shape for at in operator.outputs[:1]]
    return list(map(math.prod, taken)) == list(map(math.prod, given))


def _named(number: int, operator: OperatorRecord) -> str:
    return f"the operator {number} ({operator.code.custom or operator.code.builtin})"
