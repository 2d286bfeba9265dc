"""Convert a frozen graph to the records of a .tflite file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Literal, get_args

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import ModelRecord
from mobileprep.formats.tflite.streaming import STREAMING, Streaming
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Edge, edge, parse_ref
from mobileprep.graph.verify import check_names
from mobileprep.litert.assemble import assembled
from mobileprep.litert.loop_ranges import with_observed_loops
from mobileprep.litert.lower import lowered
from mobileprep.litert.ops.recurrent import has_unsafe_states
from mobileprep.litert.patterns import with_builtins
from mobileprep.litert.prepare import CutInput, Prepared, prepared
from mobileprep.litert.program import Op, Port, Program, Readers, Value, builtin
from mobileprep.litert.quantizing.choice import choose, fixed_ranges, tensors_with_ranges
from mobileprep.litert.quantizing.kernels import MODES as INTEGER_MODES
from mobileprep.litert.quantizing.kernels import Integers, Range
from mobileprep.litert.quantizing.quantize import GIVE_RANGES, known_ranges, quantized
from mobileprep.litert.quantizing.roundings import IntegerUnits
from mobileprep.litert.quantizing.scales import is_float
from mobileprep.litert.refusals import Refusal, refused
from mobileprep.litert.scope import ACTIVATION
from mobileprep.litert.shapes import permuted
from mobileprep.litert.streaming import LENGTHS, Streamed, streamed, with_length
from mobileprep.litert.weights import has_few_bits, in_few_bits, in_float16
from mobileprep.transforms.quantize_nodes import Rules, Settings, WeightSettings

_ONE: Final = (
    *("RELU", "RELU6", "ELU", "LOGISTIC", "TANH", "LEAKY_RELU", "HARD_SWISH", "ABS", "NEG"),
    *("EXP", "LOG", "SQRT", "RSQRT", "SQUARE", "SIN", "COS", "FLOOR", "CEIL", "ROUND", "CAST"),
)
_TWO: Final = ("ADD", "SUB", "MUL", "DIV", "MINIMUM", "MAXIMUM")
# Number of leading inputs that have the transposed shape; None for all.
_MOVABLE: Final[Mapping[str, int | None]] = {
    **dict.fromkeys(_ONE, 1),
    **dict.fromkeys(_TWO, 2),
    "CONCATENATION": None,
    "PAD": 1,
}
# Each round moves every transposition behind one more operator.
_MOST_ROUNDS: Final = 10_000


def without_inverse_transposes(program: Program) -> Program:
    """Move transpositions towards the outputs, and remove pairs that cancel out."""
    for _ in range(_MOST_ROUNDS):
        after = _cancelled(_moved(program))
        if after is program:
            return program
        program = after
    return program


def rewritten(program: Program, ops: list[Op], same: Mapping[Value, Value]) -> Program:
    """Return a program with other operators, with some values replaced by others."""

    def final(value: Value) -> Value:
        while value in same:
            value = same[value]
        return value

    if not same:
        return program.with_ops(ops)
    changed = [
        replace(op, inputs=tuple(None if v is None else final(v) for v in op.inputs))
        if any(v in same for v in op.operands)
        else op
        for op in ops
    ]
    outputs = tuple(Port(p.name, final(p.value)) for p in program.outputs)
    return Program(program.inputs, outputs, tuple(changed), program.name)


def _order(op: Op | None) -> tuple[int, ...] | None:
    """Return the permutation of a transposition, or None for other operators."""
    order = None if op is None or op.code != "TRANSPOSE" else op.constant(1)
    return None if order is None else tuple(int(i) for i in order)


def _cancelled(program: Program) -> Program:
    """Remove pairs of transpositions that cancel out."""
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
    """Move each transposition with a single reader behind that reader."""
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
    """Return the permutation shared by all inputs of an operator, if it can move behind it."""
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
    common = orders.pop() if len(orders) == 1 else None
    if op.code == "PAD" and op.constant(1) is None:
        return None
    return common if common is not None and len(common) == rank else None


def _behind(op: Op, order: tuple[int, ...], readers: Readers) -> list[Op]:
    """Return the operator on untransposed inputs, followed by the transposition of its result."""
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
    """Adjust the axis of a concatenation to the order before the transposition."""
    if op.code != "CONCATENATION" or op.options is None:
        return op
    axis = op.option("axis")
    assert isinstance(axis, int)
    return op.with_options(axis=order[axis % len(order)])


def _amounts(op: Op, inverse: tuple[int, ...]) -> tuple[Value, ...]:
    """Return the paddings of each dimension in the order before the transposition."""
    amounts = op.inputs[1] if op.code == "PAD" else None
    if amounts is None or amounts.data is None:
        return ()
    return (replace(amounts, data=np.ascontiguousarray(amounts.data[list(inverse)])),)


def _turned(value: Value | None, order: tuple[int, ...]) -> Value | None:
    """Permute the dimensions of a constant with more than one element."""
    if value is None or value.data is None or value.data.size == 1:
        return value
    full = value.data.reshape((1,) * (len(order) - value.data.ndim) + value.data.shape)
    data = np.ascontiguousarray(np.transpose(full, order))
    return replace(value, shape=data.shape, data=data)


def _read(ops: list[Op], program: Program) -> list[Op]:
    """Remove transpositions without readers."""
    counts = Readers(program.with_ops(ops)).counts
    return [op for op in ops if op.code != "TRANSPOSE" or counts.get(op.outputs[0])]


Mode = Literal["float", "float16", "weights", "int4", "int8", "int16x8"]

INTEGERS: Final[Mapping[Mode, DType]] = {mode: INTEGER_MODES[mode] for mode in INTEGER_MODES}
"""The activation type of each integer mode."""
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
"""Unchanged weights, weights in 16, 8, or 4 bits, or integer arithmetic with 8-bit weights."""


def converted(
    graph: Graph,
    inputs: Sequence[CutInput],
    outputs: Sequence[str],
    *,
    mode: Mode = "float",
    integers: Integers | None = None,
    rules: Sequence[str] = (),
    weights: WeightSettings | None = None,
    flex: bool = False,
    min_runtime: str = "",
    streaming: int | None = None,
    where: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> ModelRecord:
    """Convert a frozen graph to a LiteRT model.

    Args:
        graph: the graph.
        inputs: the tensors to feed.
        outputs: the tensors to fetch.
        mode: one of ``MODES``.
        integers: options of the integer modes.
        rules: exceptions for layers in the modes ``weights`` and ``int4``, in the syntax of
            ``quantize_nodes``; the last match wins.
        weights: how the modes ``weights`` and ``int4`` store weights without a rule. With ``int4``,
            this applies where LiteRT has kernels for 4 bits; other weights have 8.
        flex: whether to delegate ops that LiteRT cannot express to the Flex delegate, which an app
            must then link.
        min_runtime: the oldest release that must run the file, such as ``2.14``; empty for any.
        streaming: number of time steps of each call of the file, which then has the states of its
            recurrent layers as inputs and outputs; None for whole sequences.
        where: the location of the graph, for messages.
        tell: called with a sentence for each deviation: operators that stay float, rescaled
            tensors, types replaced by float32.

    Raises:
        InexpressibleError: LiteRT cannot express a node.
        UsageError: an integer mode has no ranges, or an input or output does not exist.
    """
    done = programs(
        graph,
        inputs,
        outputs,
        mode=mode,
        integers=integers,
        rules=rules,
        weights=weights,
        flex=flex,
        min_runtime=min_runtime,
        streaming=streaming,
        where=where,
        tell=tell,
    )
    record = assembled(done.stored, min_runtime, where)
    if done.streaming is None:
        return record
    entry = (STREAMING, done.streaming.encoded())
    return replace(record, metadata=(*record.metadata, entry))


class Programs(Struct, frozen=True):
    """The float program of a graph, and the program of its file.

    Args:
        source: the prepared graph that was lowered.
        plain: the float program, without fake quantization.
        stored: the program with the weights and integers of the file. Its operators are those of
            ``plain`` in the same order, with QUANTIZE and DEQUANTIZE between them.
        streaming: how to run the file on a stream; None for whole sequences.
    """

    source: Prepared
    plain: Program
    stored: Program
    streaming: Streaming | None = None


def programs(
    graph: Graph,
    inputs: Sequence[CutInput],
    outputs: Sequence[str],
    *,
    mode: Mode,
    integers: Integers | None = None,
    rules: Sequence[str] = (),
    weights: WeightSettings | None = None,
    flex: bool = False,
    min_runtime: str = "",
    streaming: int | None = None,
    where: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> Programs:
    """Lower and quantize a frozen graph; see ``converted``."""
    for open_states in (True, False):
        notes: list[str] = []
        run = None
        if streaming is None:
            source, program = _lowered(
                graph, inputs, outputs, where, flex=flex, open_states=open_states
            )
        else:
            inline = mode not in INTEGERS
            whole = _streamed(graph, inputs, outputs, streaming, where, inline=inline)
            source, run = whole.source, whole.streaming
            program = lowered(source, whole.inputs, whole.outputs, where, flex=flex)
        notes += source.notes
        if mode in INTEGERS:
            settings = integers or Integers(INTEGERS[mode])
            program, trained = without_fake_quants(program)
            if not (settings.ranges or trained):
                message = f"{mode} needs ranges of tensors, and the graph has no fake quantization"
                raise UsageError(message, GIVE_RANGES, where)
            program = program.mapped(fused)
            states = (
                () if run is None else [name for s in run.states for name in (s.input, s.output)]
            )
            done = quantized(program, settings, trained, min_runtime, states)
            notes += done.notes
            stored = done.program
        else:
            program = program.mapped(fused)
            program.mapped(partial(_checked, where))
            stored = _stored(
                program, mode, _weight_settings(mode, rules, weights), min_runtime, notes
            )
        if not has_unsafe_states(stored):
            break
    for note in notes:
        tell(note)
    return Programs(source, program, stored, run)


def _stored(
    program: Program,
    mode: Mode,
    settings_of: Callable[[Op], WeightSettings | None],
    min_runtime: str,
    notes: list[str],
) -> Program:
    """Return the program with the weights of a mode without integer activations."""
    if mode == "float16":
        return program.mapped(in_float16)
    if mode == "float":
        return program
    return program.mapped(lambda inner: in_few_bits(inner, settings_of, min_runtime, notes.append))


def _weight_settings(
    mode: Mode, rules: Sequence[str], weights: WeightSettings | None
) -> Callable[[Op], WeightSettings | None]:
    """Return how a mode and its rules store the weights of an operator."""
    read = Rules("quantize", rules)

    def settings_of(op: Op) -> WeightSettings | None:
        usual = weights or WeightSettings(4 if mode == "int4" else 8)
        if mode == "int4" and not has_few_bits(op):
            usual = WeightSettings()
        settings = Settings("nodes", usual) if op.node is None else read.settings(op.node, usual)
        return None if settings.mode == "float" else settings.weights

    return settings_of


def _checked(where: str, program: Program) -> Program:
    """Raise an error for operators that cannot be computed in float."""
    narrow = [
        op.node
        for op in program.ops
        if op.code == "FAKE_QUANT" and op.node is not None and op.option("narrow_range")
    ]
    if narrow:
        reason = "LiteRT has no narrow range for computed weights"
        hint = "compute in integers, by the mode int8; or export the model without it"
        raise refused([Refusal(node.name, node.op, reason, hint) for node in narrow], where)
    return program


def integer_units(
    graph: Graph,
    inputs: Sequence[CutInput],
    outputs: Sequence[str],
    integers: Integers,
    *,
    where: str = "",
) -> tuple[IntegerUnits, Callable[[Sequence[str]], Program]]:
    """Return the int8 operators of a graph, and a conversion with more rules; see ``converted``.

    The rules of ``integers`` take precedence over the rules that the conversion takes.
    """
    _, lowered_program = _lowered(graph, inputs, outputs, where, flex=False)
    plain, trained = without_fake_quants(lowered_program)
    program = plain.mapped(fused)
    choice = choose(program, integers, known_ranges(program, integers, trained))

    def convert(rules: Sequence[str]) -> Program:
        return quantized(
            program, replace(integers, rules=(*rules, *integers.rules)), trained
        ).program

    return IntegerUnits(program, choice), convert


class CalibrationGraph(Struct, frozen=True):
    """The graph that is calibrated to convert a model to integers.

    Args:
        graph: the cut and simplified graph.
        inputs: its placeholders, in the order of the inputs.
        tensors: the tensors that need a range.
        outputs: its outputs.
    """

    graph: Graph
    inputs: tuple[str, ...]
    tensors: tuple[Edge, ...]
    outputs: tuple[str, ...]


def to_calibrate(
    graph: Graph,
    inputs: Sequence[CutInput],
    outputs: Sequence[str],
    *,
    flex: bool = False,
    observes_loops: bool = True,
    where: str = "",
) -> CalibrationGraph:
    """Return the graph to calibrate and the tensors that need a range; see ``converted``.

    With ``observes_loops``, the graph puts out the tensors inside of loops, by TensorLists.
    """
    source, program = _lowered(graph, inputs, outputs, where, flex=flex)
    plain, _ = without_fake_quants(program)
    whole = plain.mapped(fused)
    # Inputs and outputs may be integers in the file although their operators are in float.
    values = [port.value for port in (*whole.inputs, *whole.outputs)]
    fixed = fixed_ranges(whole, DType.INT8)
    ends = [value.name for value in values if is_float(value) and value.name not in fixed]
    names = dict.fromkeys((*tensors_with_ranges(whole), *ends))
    tensors = [edge(parse_ref(name)) for name in names]
    observed: Graph = source.graph
    within: tuple[Edge, ...] = ()
    if observes_loops:
        observed, within = with_observed_loops(source.graph, whole)
    return CalibrationGraph(
        source.tables.filling(observed),
        source.inputs,
        (*(t for t in tensors if t[0] in source.graph), *within),
        tuple(map(str, source.outputs)),
    )


def _lowered(
    graph: Graph,
    inputs: Sequence[CutInput],
    outputs: Sequence[str],
    where: str,
    *,
    flex: bool,
    open_states: bool = True,
) -> tuple[Prepared, Program]:
    check_names(graph, where)
    names = [spec.name for spec in inputs]
    source = prepared(graph, inputs, outputs, open_states=open_states)
    program = lowered(source, names, outputs, where, flex=flex)
    if open_states and has_unsafe_states(_without_unread(program)):
        return _lowered(graph, inputs, outputs, where, flex=flex, open_states=False)
    return source, program


def _streamed(
    graph: Graph,
    inputs: Sequence[CutInput],
    outputs: Sequence[str],
    count: int,
    where: str,
    *,
    inline: bool,
) -> Streamed:
    """Return the network for some time steps at a time."""
    check_names(graph, where)
    lengths = [with_length(graph, inputs, length) for length in LENGTHS]
    sources = [prepared(graph, specs, outputs, masks=False) for specs in lengths]
    if lengths[0] == lengths[1]:
        del sources[1:]
    names = [spec.name for spec in inputs]
    return streamed(sources, names, outputs, count, where, inline=inline)


def without_fake_quants(program: Program) -> tuple[Program, dict[str, Range]]:
    """Remove FAKE_QUANT operators, and return the range of each tensor that they clip, by name."""
    ranges: dict[str, Range] = {}
    same: dict[Value, Value] = {}
    remaining = []
    for op in program.ops:
        value = op.input_at(0)
        if op.code != "FAKE_QUANT" or value is None:
            remaining.append(op)
            continue
        same[op.outputs[0]] = value
        while value in same:
            value = same[value]
        ranges[value.name] = (_number(op, "min"), _number(op, "max"))
    return rewritten(program, remaining, same), ranges


def _number(op: Op, name: str) -> float:
    value = op.option(name)
    assert isinstance(value, int | float)
    return float(value)


# Source: the rational approximation of float32 erf in Eigen 3.3, on [-4, 4]: x * p(x * x) /
# q(x * x), within 4e-7 of erf. Here x is 4 * t; scaling coefficients by powers of 16 is exact.
_EDGE: Final = 4.0
_ABOVE: Final = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06),
    *(-5.69250639462346e-05, -7.34990630326855e-04, -2.95459980854025e-03),
    -1.60960333262415e-02,
)
_BELOW: Final = (
    *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03),
    *(-7.37332916720468e-03, -1.42647390514189e-02),
)


def expanded(program: Program) -> Program:
    """Expand each ERF to products, sums, and a quotient."""
    ops: list[Op] = []
    for op in program.ops:
        ops += _Erf(op).ops() if op.code == "ERF" else [op]
    return program.with_ops(ops)


class _Erf:
    """The expansion of one ERF operator."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._ops: list[Op] = []

    def ops(self) -> list[Op]:
        (x,) = self._op.inputs
        assert x is not None
        # LiteRT divides only in float; in integers, the bound would be rounded to the scale of x.
        scaled = Value(f"{self._op.outputs[0].name}_scaled", DType.FLOAT, self._op.outputs[0].shape)
        clip = {ACTIVATION: "RELU_N1_TO_1"}
        self._ops.append(builtin("DIV", [x, self._number(_EDGE)], [scaled], **clip))
        square = self._two("MUL", scaled, scaled)
        above = self._two("MUL", scaled, self._polynomial(square, _ABOVE, _EDGE))
        below = self._polynomial(square, _BELOW, 1.0)
        return [*self._ops, builtin("DIV", [above, below], self._op.outputs)]

    def _polynomial(self, x: Value, coefficients: Sequence[float], factor: float) -> Value:
        """Evaluate a polynomial by Horner's rule, highest power first, multiplied by a factor."""
        powers = range(len(coefficients) - 1, -1, -1)
        first, *rest = (
            c * factor * _EDGE ** (2 * power) for c, power in zip(coefficients, powers, strict=True)
        )
        total = self._number(first)
        for coefficient in rest:
            total = self._two("MUL", total, x)
            total = self._two("ADD", total, self._number(coefficient))
        return total

    def _number(self, number: float) -> Value:
        data = np.array(number, np.float32)
        return Value(f"{self._op.outputs[0].name}_number", DType.FLOAT, (), data)

    def _two(self, code: str, lhs: Value, rhs: Value) -> Value:
        output = self._op.outputs[0]
        result = Value(f"{output.name}_{len(self._ops)}", DType.FLOAT, output.shape)
        self._ops.append(builtin(code, [lhs, rhs], [result]))
        return result


ACTIVATIONS: Final = frozenset({"RELU", "RELU6", "RELU_N1_TO_1"})
"""Activation operators that can be fused into others, by an option with their name."""

# Operators with a bias, and the axis of the output channels in their weights.
_BIASED: Final = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
_ACTIVE: Final = frozenset(
    {*_BIASED, "ADD", "SUB", "MUL", "DIV", "MAX_POOL_2D", "AVERAGE_POOL_2D", "CONV_3D"}
)


def fused(program: Program) -> Program:
    """Apply all fusions to a program, and remove operators without readers."""
    for step in _STEPS:
        program = step(program)
    return program


def _with_biases(program: Program) -> Program:
    """Fold additions of a per-channel constant into the bias of the preceding layer."""
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
            # The fused operator takes the layer's position; the addend is a constant.
            replaced[layer] = replace(layer, inputs=inputs, outputs=total.outputs)
            replaced[total] = None
            return


def _sum_of_biases(layer: Op, added: Value) -> Value | None:
    """Return the layer's bias plus a constant, or None unless it has one value per channel."""
    weights, before = layer.inputs[1], layer.input_at(2)
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
        if uses.once(op.inputs[0]) and _plain(layer) and op.outputs[0].dtype.is_floating:
            active = layer.with_options(**{ACTIVATION: op.code})
            replaced[layer], replaced[op] = replace(active, outputs=op.outputs), None
    return _replaced(program, replaced)


def _plain(op: Op) -> bool:
    """Return whether an operator has no fused activation yet."""
    return op.option(ACTIVATION, "NONE") == "NONE"


def _replaced(program: Program, replaced: Mapping[Op, Op | None]) -> Program:
    ops = (replaced.get(op, op) for op in program.ops)
    return program.with_ops([op for op in ops if op is not None])


def _without_unread(program: Program) -> Program:
    """Remove operators whose outputs have no readers."""
    read = {port.value for port in program.outputs}
    retained = []
    for op in reversed(program.ops):
        if any(value in read for value in op.outputs):
            read.update(op.operands)
            retained.append(op)
    return program.with_ops(retained[::-1])


_STEPS: Final[tuple[Callable[[Program], Program], ...]] = (
    with_builtins,
    expanded,
    without_inverse_transposes,
    _without_unread,
    _with_biases,
    _with_activations,
    _without_unread,
)
