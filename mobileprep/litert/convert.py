"""From a frozen graph to the records of a .tflite file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.frozen import dataclass
from mobileprep.ir.graph import Graph
from mobileprep.ir.refs import Edge, edge, parse_ref
from mobileprep.ir.verify import check_names
from mobileprep.litert.assemble import assembled
from mobileprep.litert.fusing import fused
from mobileprep.litert.lower import lowered
from mobileprep.litert.prepare import CutInput, Prepared, prepared
from mobileprep.litert.program import Program
from mobileprep.litert.quantizing.choice import tensors_with_ranges
from mobileprep.litert.quantizing.quantize import GIVE_RANGES, quantized
from mobileprep.litert.quantizing.settings import Integers
from mobileprep.litert.quantizing.trained import without_fake_quants
from mobileprep.litert.refusals import Refusal, refused
from mobileprep.litert.weights import in_float16, in_int4, in_int8

Mode = Literal["float", "float16", "weights", "int4", "int8", "int16x8"]

_STORED: Final[dict[Mode, Callable[[Program], Program]]] = {
    "float": lambda program: program,
    "float16": in_float16,
    "weights": in_int8,
    "int4": in_int4,
}
INTEGERS: Final[dict[Mode, DType]] = {"int8": DType.INT8, "int16x8": DType.INT16}
"""The types of activations by the modes that compute in integers."""
MODES: Final = (*_STORED, *INTEGERS)
"""Weights as they are, in 16, 8 or 4 bits; or all in integers, with weights of 8 bits."""


def converted(
    graph: Graph,
    inputs: Sequence[CutInput],
    outputs: Sequence[str],
    *,
    mode: Mode = "float",
    integers: Integers | None = None,
    flex: bool = False,
    min_runtime: str = "",
    where: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> ModelRecord:
    """A frozen graph as a LiteRT model.

    Args:
        graph: the graph, without variables.
        inputs: what is fed, in the order in which the file takes it.
        outputs: what is fetched, in the order in which the file gives it.
        mode: how weights are stored, and whether it computes in integers.
        integers: how, for the modes that do.
        flex: whether ops that LiteRT cannot express are left to the Flex delegate, which an app
            has to link then.
        min_runtime: the oldest release that has to run the file, such as ``2.14``; empty for any.
        where: what the graph is called, for messages.
        tell: receives a sentence for each deviation: operators that stay float though others do
            not, tensors that are rescaled, types that are replaced by float32.

    Raises:
        UnsupportedError: naming every node that LiteRT cannot express, or that ``min_runtime``
            cannot run.
        TransformError: a rule of ``integers`` is not understood.
        UsageError: a name is not in the graph, or a placeholder that is needed is no input; or
            ranges are needed, and there are none.
        InvalidGraphError: the graph is malformed.
    """
    source, program = _lowered(graph, inputs, outputs, where, flex=flex)
    for note in source.notes:
        tell(note)
    if mode not in INTEGERS:
        program = program.mapped(fused)
        program.mapped(partial(_checked, where))
        return assembled(program.mapped(_STORED[mode]), min_runtime, where)
    asked = integers or Integers(INTEGERS[mode])
    plain, trained = without_fake_quants(program)
    if not (asked.ranges or trained):
        message = f"{mode} needs ranges of tensors, and the graph has no fake quantization"
        raise UsageError(message, GIVE_RANGES, where)
    done = quantized(plain.mapped(fused), asked, trained)
    for note in done.notes:
        tell(note)
    return assembled(done.program, min_runtime, where)


def _checked(where: str, program: Program) -> Program:
    """A program that is to compute in float.

    Raises:
        InexpressibleError: a fake quantization that is left has a narrow range, with which the
            runtime ends the allocation.
    """
    narrow = [
        op.node
        for op in program.ops
        if op.code == "FAKE_QUANT" and op.options is not None and op.node is not None
        if op.options.values["narrow_range"]
    ]
    if narrow:
        reason = "LiteRT has no narrow range for what is computed while the graph runs"
        mend = "compute in integers, by the mode int8; or export the model without it"
        raise refused([Refusal(node.name, node.op, reason, mend) for node in narrow], where)
    return program


@dataclass(frozen=True)
class CalibrationGraph:
    """What is run on samples for the ranges of a model in integers.

    Args:
        graph: the graph that becomes the model: cut, and simplified.
        inputs: its placeholders, in the order of the inputs.
        tensors: those that need a range.
    """

    graph: Graph
    inputs: tuple[str, ...]
    tensors: tuple[Edge, ...]


def to_calibrate(
    graph: Graph,
    inputs: Sequence[CutInput],
    outputs: Sequence[str],
    *,
    flex: bool = False,
    where: str = "",
) -> CalibrationGraph:
    """The graph to measure ranges on, and the tensors whose ranges count; see ``converted``."""
    source, program = _lowered(graph, inputs, outputs, where, flex=flex)
    plain, _ = without_fake_quants(program)
    names = tensors_with_ranges(plain.mapped(fused))
    found = (edge(parse_ref(name)) for name in names)
    return CalibrationGraph(
        source.tables.filling(source.graph),
        source.inputs,
        tuple(t for t in found if t[0] in source.graph),
    )


def _lowered(
    graph: Graph, inputs: Sequence[CutInput], outputs: Sequence[str], where: str, *, flex: bool
) -> tuple[Prepared, Program]:
    check_names(graph, where)
    source = prepared(graph, inputs, outputs)
    names = [spec.name for spec in inputs]
    return source, lowered(source, names, outputs, where, flex=flex)
