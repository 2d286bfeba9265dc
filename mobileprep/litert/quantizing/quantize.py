"""Convert a float program to integer arithmetic."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.refs import FreshNames
from mobileprep.litert.program import Op, Port, Program, Value, builtin
from mobileprep.litert.quantizing.choice import (
    OperatorChoice,
    choose,
    fixed_ranges,
    float_ops,
    ranges_within,
)
from mobileprep.litert.quantizing.kernels import (
    KERNELS,
    LAYERS,
    MODES,
    SIZES,
    EndType,
    Integers,
    IntegerSteps,
    Range,
    least_scales,
    quantized_bias,
    steps_of,
)
from mobileprep.litert.quantizing.scales import Scales, activations, is_float
from mobileprep.litert.quantizing.sequences import (
    HIDDEN,
    SEQUENCE,
    STATE,
    integer_lstm,
    with_first_states,
)
from mobileprep.litert.weights import LAYER_AXES, in_few_bits, quantized_weights, stored_type
from mobileprep.transforms.quantize_nodes import WeightSettings

_SUMS: Final = {DType.INT8: DType.INT32, DType.INT16: DType.INT64}


class Rewriter:
    """The rewritten operators, and the integer and float forms of each value.

    Args:
        program: the float program.
        choice: the operators to convert to integers.
        ranges: for each activation type, the ranges of tensors by name.
    """

    def __init__(
        self, program: Program, choice: OperatorChoice, ranges: Mapping[DType, Mapping[str, Range]]
    ) -> None:
        self.ops: list[Op] = []
        self._choice = choice
        self._ranges = ranges
        lstms = [op for op in choice.kinds if op.code == SEQUENCE]
        states = (op.inputs[index] for op in lstms for index in (HIDDEN, STATE))
        # The first value of each state in float.
        self._first = {
            value: replace(value, is_variable=False) for value in states if value is not None
        }
        self._ends = {port.value for port in (*program.inputs, *program.outputs)}
        self._names = FreshNames(value.name for op in program.ops for value in op.outputs)
        self._forms: dict[Value, Value] = {}
        self._steps: dict[Value, IntegerSteps] = {}
        self._integers: dict[tuple[Value, IntegerSteps], Value] = {}
        self._floats: dict[Value, Value] = {}
        self._constants: dict[tuple[Value, IntegerSteps], Value] = {}
        self._weights: dict[tuple[Value, DType, bytes], Value] = {}

    def record(self, value: Value, form: Value, steps: IntegerSteps) -> None:
        """Record the integer form of a value."""
        self._forms[value] = form
        self._steps[value] = steps

    def add(self, op: Op) -> None:
        """Add an operator of the program, in integers if it was chosen."""
        if op in self._choice.kinds:
            self._add_integer(op, self._choice.kinds[op])
            return
        if len(op.inputs) > 1 and op.inputs[1] in self._first:
            self._add_last_state(op, op.inputs[1])
            return
        outputs = tuple(self._first.get(value, value) for value in op.outputs)
        if outputs != op.outputs:
            op = replace(op, outputs=outputs)
        form = self.as_available if op.code in SIZES else self.as_float
        inputs = tuple(None if v is None else form(v) for v in op.inputs)
        self.ops.append(op if inputs == op.inputs else replace(op, inputs=inputs))

    def as_available(self, value: Value) -> Value:
        """Return the available form of a value."""
        return self._forms.get(value, value)

    def as_float(self, value: Value) -> Value:
        """Return a value in float, adding a DEQUANTIZE before its first reader if necessary."""
        form = self._forms.get(value)
        if form is None:
            return value
        if value not in self._floats:
            is_end = value in self._ends
            name = value.name if is_end else self._names.name(f"{value.name}_float")
            dequantized = replace(value, name=name)
            self.ops.append(builtin("DEQUANTIZE", [form], [dequantized]))
            self._floats[value] = dequantized
        return self._floats[value]

    def as_integers(self, value: Value, steps: IntegerSteps) -> Value:
        """Return a value in integers, adding a QUANTIZE before its first reader if necessary."""
        if self._steps.get(value) == steps:
            return self._forms[value]
        if (value, steps) not in self._integers:
            source = self._forms.get(value, value)
            name = self._names.name(f"{value.name}_{steps.kind.short}")
            form = Value(name, steps.kind, value.shape, None, steps.quantization)
            self.ops.append(builtin("QUANTIZE", [source], [form]))
            self._integers[value, steps] = form
        return self._integers[value, steps]

    def _state(self, value: Value, steps: IntegerSteps) -> Value:
        """Return the variable for a state in integers, and set it to its first value."""
        form = replace(_form(value, f"{value.name}_{steps.kind.short}", steps), is_variable=True)
        self.ops.append(builtin("QUANTIZE", [self._first[value]], [form]))
        self.record(value, form, steps)
        return form

    def _add_last_state(self, op: Op, state: Value) -> None:
        """Add the operator that reads a state after the last step; see ``ops.recurrent``."""
        is_chosen, _, column = op.inputs
        assert column is not None
        steps = self._steps[state]
        form = _form(op.outputs[0], f"{op.outputs[0].name}_{steps.kind.short}", steps)
        inputs = (is_chosen, self._forms[state], self.as_integers(column, steps))
        self.ops.append(replace(op, inputs=inputs, outputs=(form,)))
        self.record(op.outputs[0], form, steps)

    def _add_integer(self, op: Op, kind: DType) -> None:
        scales = self._choice.scales[kind]
        if op.code == SEQUENCE:
            image = self._activation(op, 0, scales)
            result = self._result(op.outputs[0], scales)
            lstm = integer_lstm(op, image, result, self._ranges[kind], self._state)
            self.ops.append(lstm)
            return
        inputs = list(op.inputs)
        for index in activations(op):
            inputs[index] = self._activation(op, index, scales)
        if op.code in LAYERS:
            self._weigh(op, inputs, _SUMS[kind])
        outputs = tuple(self._result(value, scales) for value in op.outputs)
        options = KERNELS[op.code].options.get(kind)
        if options is not None and op.options is not None:
            op = op.with_options(**options)
        self.ops.append(replace(op, inputs=tuple(inputs), outputs=outputs))

    def _activation(self, op: Op, index: int, scales: Scales) -> Value:
        value = op.inputs[index]
        steps = scales.steps(scales.slot(op, index))
        assert value is not None
        assert steps is not None
        if value.data is None:
            return self.as_integers(value, steps)
        if (value, steps) not in self._constants:
            form = _form(value, value.name, steps)
            self._constants[value, steps] = replace(form, data=steps.integers(value.data))
        return self._constants[value, steps]

    def _weigh(self, op: Op, inputs: list[Value | None], sums: DType) -> None:
        """Quantize the weights and bias of a layer whose sums have a type."""
        layer = LAYERS[op.code]
        weights, image = op.inputs[layer.weights], inputs[layer.image]
        assert weights is not None
        assert weights.data is not None
        assert image is not None
        assert image.quantization is not None
        scale = float(image.quantization.scales[0])
        bias = op.input_at(layer.bias)
        least = None if bias is None or bias.data is None else least_scales(bias.data, scale, sums)
        settings = self._choice.settings_of(op).weights
        data, details = quantized_weights(weights.data, LAYER_AXES[op.code], settings, least)
        # Steps of an unrolled loop share their weights.
        kind = stored_type(op, settings)
        key = (weights, kind, details.scales.tobytes())
        if key not in self._weights:
            stored = replace(weights, dtype=kind, data=data, quantization=details)
            self._weights[key] = stored
        inputs[layer.weights] = self._weights[key]
        if bias is not None and bias.data is not None:
            values, details = quantized_bias(bias.data, scale, details, sums)
            inputs[layer.bias] = replace(bias, dtype=sums, data=values, quantization=details)

    def _result(self, value: Value, scales: Scales) -> Value:
        if not is_float(value):
            return value
        steps = scales.steps(value)
        assert steps is not None
        name = value.name
        if value in self._ends:
            name = self._names.name(f"{name}_{steps.kind.short}")
        form = _form(value, name, steps)
        self.record(value, form, steps)
        return form


_MIDDLE: Final = 128
# Factor for the ranges of 16-bit exceptions: a scale that is 32 times finer than that of int8.
_HEADROOM: Final = 4.0
GIVE_RANGES: Final = "add `calibration:` to the recipe, or --calibration to `mobileprep tflite`"
_HINT: Final = f"{GIVE_RANGES}, or leave its type float"


class Quantized(Struct, frozen=True):
    """A program with integer arithmetic.

    Args:
        program: the program.
        notes: a sentence for each kind of operator that stays float, with the reason.
    """

    program: Program
    notes: tuple[str, ...]


def quantized(
    program: Program,
    options: Integers,
    trained: dict[str, Range],
    min_runtime: str = "",
    states: Collection[str] = (),
) -> Quantized:
    """Convert operators to integers, as far as the runtime and the ranges allow.

    Loop variables, and branches, stay float. Layers that stay float store their weights like
    ``in_few_bits``, in 8 bits or as a rule says.

    Args:
        program: the float program.
        options: the options.
        trained: the ranges of FAKE_QUANT operators, by the name of the tensor that they clip.
        min_runtime: the oldest release that must run the file; empty for any.
        states: names of inputs and outputs that stay float.

    Raises:
        UsageError: the range of an integer input or output is unknown.
    """
    return _quantized(program, options, trained, min_runtime, frozenset(), states)


def _quantized(
    program: Program,
    options: Integers,
    trained: dict[str, Range],
    min_runtime: str,
    floats: frozenset[Op],
    states: Collection[str] = (),
) -> Quantized:
    ranges = known_ranges(program, options, trained)
    within = {op: inner for op in program.ops if (inner := ranges_within(op, options.ranges))}
    choice = choose(program, options, ranges, floats | within.keys())

    def settings_of(op: Op) -> WeightSettings | None:
        settings = choice.settings_of(op)
        return None if op in choice.kinds or settings.mode == "float" else settings.weights

    notes = list(choice.notes())

    def in_integers(op: Op) -> Op:
        """Return a loop whose body computes in integers if the ranges within it are known."""
        subgraphs = [inner.mapped(stored) for inner in op.subgraphs]
        if op in within:
            body, sixteen = op.subgraphs[1], ranges_within(op, options.sixteen)
            own = replace(
                options,
                ranges=within[op],
                sixteen=sixteen,
                input_type="float",
                output_type="float",
            )
            done = _quantized(body, own, {}, min_runtime, float_ops(body))
            notes.extend(done.notes)
            subgraphs[1] = done.program
        return replace(op, subgraphs=tuple(subgraphs))

    def stored(inner: Program) -> Program:
        return in_few_bits(inner, settings_of, min_runtime, notes.append)

    program = stored(
        program.with_ops([in_integers(op) if op.subgraphs else op for op in program.ops])
    )
    rewriter = Rewriter(program, choice, ranges)
    ends = _Ends(rewriter, choice.scales[options.kind], ranges[options.kind], options, states)
    inputs = tuple(ends.input(port) for port in program.inputs)
    for op in program.ops:
        rewriter.add(op)
    outputs = tuple(ends.output(port) for port in program.outputs)
    ops = _needed(rewriter.ops, outputs)
    return Quantized(Program(inputs, outputs, ops, program.name), tuple(notes))


def known_ranges(
    program: Program, options: Integers, trained: Mapping[str, Range]
) -> dict[DType, dict[str, Range]]:
    """Return the ranges of tensors by name, for each activation type.

    Measured ranges may leave out rare values. 16-bit exceptions in an int8 program have bits to
    spare for them, so their ranges are wider.
    """
    ranges: dict[DType, dict[str, Range]] = {}
    for kind in MODES.values():
        is_exception = kind is DType.INT16 and options.kind is DType.INT8
        source = {**options.ranges, **options.sixteen} if is_exception else options.ranges
        wider = _HEADROOM if is_exception else 1.0
        measured = {n: (low * wider, high * wider) for n, (low, high) in source.items()}
        known = {**measured, **trained}
        if not options.is_trained:
            known |= {
                name: _within(span, trained[name]) if name in trained else span
                for name, span in measured.items()
            }
        ranges[kind] = with_first_states(program, {**fixed_ranges(program, kind), **known})
    return ranges


def _within(measured: Range, trained: Range) -> Range:
    """Return the part of a measured range that fake quantization does not clip."""
    low, high = max(measured[0], trained[0]), min(measured[1], trained[1])
    return (low, high) if low < high else trained


class _Ends(Struct, frozen=True):
    """Inputs and outputs of the program, in the requested types."""

    rewriter: Rewriter
    scales: Scales
    ranges: dict[str, Range]
    options: Integers
    states: Collection[str]

    def input(self, port: Port) -> Port:
        """Return an input with the quantization that its readers expect."""
        if self._is_float(port, self.options.input_type):
            return port
        steps = self._steps(port, "input")
        form = _form(port.value, port.value.name, steps)
        self.rewriter.record(port.value, form, steps)
        if self.options.input_type != "uint8":
            return Port(port.name, form)
        fed = _unsigned(port.value, steps)
        self.rewriter.ops.append(builtin("QUANTIZE", [fed], [form]))
        return Port(port.name, fed)

    def output(self, port: Port) -> Port:
        if self._is_float(port, self.options.output_type):
            return Port(port.name, self.rewriter.as_float(port.value))
        steps = self._steps(port, "output")
        form = self.rewriter.as_integers(port.value, steps)
        if self.options.output_type != "uint8":
            return Port(port.name, form)
        unsigned = _unsigned(port.value, steps)
        self.rewriter.ops.append(builtin("QUANTIZE", [form], [unsigned]))
        return Port(port.name, unsigned)

    def _is_float(self, port: Port, kind: EndType) -> bool:
        return kind == "float" or not is_float(port.value) or port.name in self.states

    def _steps(self, port: Port, what: str) -> IntegerSteps:
        steps = self.scales.steps(port.value)
        if steps is not None:
            return steps
        span = self.ranges.get(port.value.name)
        if span is None:
            message = f"the range of the {what} {port.name!r} is not known"
            raise UsageError(message, _HINT)
        return steps_of(span, self.options.kind)


def _unsigned(value: Value, steps: IntegerSteps) -> Value:
    """Return the uint8 form of a value whose int8 form has these steps."""
    shifted = IntegerSteps(DType.UINT8, steps.scale, steps.zero + _MIDDLE)
    return _form(value, f"{value.name}_uint8", shifted)


def _form(value: Value, name: str, steps: IntegerSteps) -> Value:
    return replace(value, name=name, dtype=steps.kind, quantization=steps.quantization)


def _needed(ops: Sequence[Op], outputs: Sequence[Port]) -> tuple[Op, ...]:
    """Remove conversions without readers."""
    read = {port.value for port in outputs}
    read.update(value for op in ops for value in op.operands)
    return tuple(op for op in ops if any(value in read for value in op.outputs))
