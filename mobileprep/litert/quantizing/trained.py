"""Ranges that training with fake quantization has left in a program."""

from __future__ import annotations

from mobileprep.formats.tflite.records import Options
from mobileprep.litert.program import Program, Value
from mobileprep.litert.quantizing.steps import Range
from mobileprep.litert.transposes import rewritten


def without_fake_quants(program: Program) -> tuple[Program, dict[str, Range]]:
    """A program without FAKE_QUANT, and the range of each tensor that one rounded, by name."""
    ranges: dict[str, Range] = {}
    same: dict[Value, Value] = {}
    kept = []
    for op in program.ops:
        value = op.inputs[0] if op.inputs else None
        if op.code != "FAKE_QUANT" or op.options is None or value is None:
            kept.append(op)
            continue
        same[op.outputs[0]] = value
        while value in same:
            value = same[value]
        ranges[value.name] = (_number(op.options, "min"), _number(op.options, "max"))
    return rewritten(program, kept, same), ranges


def _number(options: Options, name: str) -> float:
    value = options.values[name]
    assert isinstance(value, int | float)
    return float(value)
