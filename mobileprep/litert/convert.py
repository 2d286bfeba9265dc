"""From a frozen graph to the records of a .tflite file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.ir.graph import Graph
from mobileprep.ir.verify import check_names
from mobileprep.litert.assemble import assembled
from mobileprep.litert.fusing import fused
from mobileprep.litert.lower import lowered
from mobileprep.litert.prepare import CutInput, prepared
from mobileprep.litert.program import Program
from mobileprep.litert.weights import in_float16, in_int8

Mode = Literal["float", "float16", "weights"]

_STORED: Final[dict[Mode, Callable[[Program], Program]]] = {
    "float": lambda program: program,
    "float16": in_float16,
    "weights": in_int8,
}
MODES: Final = tuple(_STORED)
"""How weights are stored: as they are, in 16 bits, or in 8 bits."""


def converted(
    graph: Graph,
    inputs: Sequence[CutInput],
    outputs: Sequence[str],
    *,
    mode: Mode = "float",
    where: str = "",
) -> ModelRecord:
    """A frozen graph as a LiteRT model.

    Args:
        graph: the graph, without variables.
        inputs: what is fed, in the order in which the file takes it.
        outputs: what is fetched, in the order in which the file gives it.
        mode: how weights are stored: as they are, in 16 bits, or in 8 bits.
        where: what the graph is called, for messages.

    Raises:
        UnsupportedError: naming every node that LiteRT cannot express.
        UsageError: a name is not in the graph, or a placeholder that is needed is no input.
        InvalidGraphError: the graph is malformed.
    """
    program = program_of(graph, inputs, outputs, where=where)
    return assembled([_STORED[mode](program)])


def program_of(
    graph: Graph, inputs: Sequence[CutInput], outputs: Sequence[str], *, where: str = ""
) -> Program:
    """A frozen graph as a fused program, its weights as they are; see ``converted``."""
    check_names(graph, where)
    source = prepared(graph, inputs, outputs)
    program = lowered(source, [spec.name for spec in inputs], outputs, where)
    return fused(program)
