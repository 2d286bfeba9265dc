"""Whether each tensor of a .tflite file is there by the time that it is read, and may be written.

LiteRT's interpreter takes that for granted: it reads where nothing is, or writes into the file's
constants, and ends the process. XNNPACK unpacks constants by the sizes that are declared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mobileprep.formats.tflite.records import LiteTensor, OperatorRecord, SubGraphRecord

_NONE: Final = -1
_UNPACKS: Final = frozenset({"DENSIFY", "DEQUANTIZE"})
_TOO_EARLY: Final = "before anything gives it"


def fault_of_tensor_use(graph: SubGraphRecord, buffers: Sequence[bytes | memoryview]) -> str | None:
    """What is wrong with the order of a subgraph's operators, in words; None where nothing is.

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


def _is_same_size(graph: SubGraphRecord, operator: OperatorRecord) -> bool:
    """Whether a tensor and what is made of it have as many elements, by the file."""
    taken = [graph.tensors[at].shape for at in operator.inputs[:1] if at != _NONE]
    given = [graph.tensors[at].shape for at in operator.outputs[:1]]
    return list(map(math.prod, taken)) == list(map(math.prod, given))


def _named(number: int, operator: OperatorRecord) -> str:
    return f"the operator {number} ({operator.code.custom or operator.code.builtin})"
