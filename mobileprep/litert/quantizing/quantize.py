"""From a program in float to one in integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options
from mobileprep.frozen import dataclass
from mobileprep.litert.program import Op, Port, Program, Value
from mobileprep.litert.quantizing.choice import OperatorChoice, choose, fixed_ranges
from mobileprep.litert.quantizing.rewrite import Rewriter
from mobileprep.litert.quantizing.scales import is_float
from mobileprep.litert.quantizing.settings import Integers
from mobileprep.litert.quantizing.steps import IntegerSteps, Range, steps_of
from mobileprep.litert.weights import in_int8

_MIDDLE: Final = 128
GIVE_RANGES: Final = "add `calibration:` to the recipe, or --calibration to `mobileprep tflite`"
_HINT: Final = f"{GIVE_RANGES}, or leave its type float"


@dataclass(frozen=True)
class Quantized:
    """A program in integers.

    Args:
        program: the program.
        notes: which of its operators stay float and why, a sentence each.
    """

    program: Program
    notes: tuple[str, ...]


def quantized(program: Program, asked: Integers, trained: dict[str, Range]) -> Quantized:
    """The program with its operators in integers, as far as the runtime and the ranges allow.

    What loops and branches run stays float. Layers that stay float store their weights in int8, as
    ``in_int8`` does, unless a rule says that they are not to be touched.

    Args:
        program: in float, without FAKE_QUANT.
        asked: how.
        trained: the ranges of FAKE_QUANT operators, by the name of the tensor that they clip.

    Raises:
        TransformError: a rule is not understood.
        UsageError: an input or output is to be in integers, and its range is not known.
    """
    ranges = {**fixed_ranges(program, asked.kind), **asked.ranges, **trained}
    if not asked.is_trained:
        ranges |= {
            name: _within(span, trained[name]) if name in trained else span
            for name, span in asked.ranges.items()
        }
    choice = choose(program, asked, ranges)

    def is_stored(op: Op) -> bool:
        return op not in choice.ops and choice.settings_of(op).mode != "float"

    program = program.mapped(lambda inner: in_int8(inner, is_stored))
    rewriter = Rewriter(program, choice, asked.kind)
    ends = _Ends(rewriter, choice, ranges, asked)
    inputs = tuple(ends.input(port) for port in program.inputs)
    for op in program.ops:
        rewriter.add(op)
    outputs = tuple(ends.output(port) for port in program.outputs)
    ops = _needed(rewriter.ops, outputs)
    return Quantized(Program(inputs, outputs, ops, program.name), choice.notes())


def _within(measured: Range, trained: Range) -> Range:
    """Return the part of a measured range that fake quantization does not clip."""
    low, high = max(measured[0], trained[0]), min(measured[1], trained[1])
    return (low, high) if low < high else trained


@dataclass(frozen=True)
class _Ends:
    """Inputs and outputs of the program, in the types that the app wants."""

    rewriter: Rewriter
    choice: OperatorChoice
    ranges: dict[str, Range]
    asked: Integers

    def input(self, port: Port) -> Port:
        """An input; its integers are those that its readers take."""
        if self.asked.input_type == "float" or not is_float(port.value):
            return port
        steps = self._steps(port, "input")
        form = _form(port.value, port.value.name, steps)
        self.rewriter.given(port.value, form, steps)
        if self.asked.input_type != "uint8":
            return Port(port.name, form)
        fed = _form(port.value, f"{port.value.name}_uint8", _unsigned(steps))
        self.rewriter.ops.append(_requantized(fed, form))
        return Port(port.name, fed)

    def output(self, port: Port) -> Port:
        """An output."""
        if self.asked.output_type == "float" or not is_float(port.value):
            return Port(port.name, self.rewriter.as_float(port.value))
        steps = self._steps(port, "output")
        form = self.rewriter.as_integers(port.value, steps)
        if self.asked.output_type != "uint8":
            return Port(port.name, form)
        left = _form(port.value, f"{port.value.name}_uint8", _unsigned(steps))
        self.rewriter.ops.append(_requantized(form, left))
        return Port(port.name, left)

    def _steps(self, port: Port, what: str) -> IntegerSteps:
        found = self.choice.scales.steps(port.value)
        if found is not None:
            return found
        span = self.ranges.get(port.value.name)
        if span is None:
            message = f"the range of the {what} {port.name!r} is not known"
            raise UsageError(message, _HINT)
        return steps_of(span, self.asked.kind)


def _unsigned(steps: IntegerSteps) -> IntegerSteps:
    return IntegerSteps(DType.UINT8, steps.scale, steps.zero + _MIDDLE)


def _form(value: Value, name: str, steps: IntegerSteps) -> Value:
    return replace(value, name=name, dtype=steps.kind, quantization=steps.quantization)


def _requantized(taken: Value, given: Value) -> Op:
    return Op("QUANTIZE", (taken,), (given,), Options("QuantizeOptions"))


def _needed(ops: Sequence[Op], outputs: Sequence[Port]) -> tuple[Op, ...]:
    """Without conversions that nobody reads."""
    read = {port.value for port in outputs}
    read.update(value for op in ops for value in op.inputs if value is not None)
    return tuple(op for op in ops if any(value in read for value in op.outputs))
