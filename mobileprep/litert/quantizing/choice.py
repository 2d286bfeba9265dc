"""Choose the operators of a program that compute in integers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.litert.program import Op, Program, Readers, Value
from mobileprep.litert.quantizing.kernels import (
    KERNELS,
    LAYERS,
    MODES,
    SIZES,
    Integers,
    IntegerSteps,
    Range,
    steps_of,
)
from mobileprep.litert.quantizing.scales import Scales, activations, is_float, operands, results
from mobileprep.litert.quantizing.sequences import (
    SEQUENCE,
    hindrance,
    inner_ranges,
    is_state_op,
)
from mobileprep.litert.refusals import listed
from mobileprep.transforms.quantize_nodes import Rules, Settings
from mobileprep.transforms.replace_detection_postprocess import KEEP_FLOAT

# Rules without a mode store the tables of these ops, and compute other ops in integers.
_LOOKUP_OPS: Final = frozenset({"Gather", "GatherV2", "ResourceGather"})
_SHOWN: Final = 3
# Operators that compute the next state of a loop from the results of layers.
_ARITHMETIC: Final = ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM", "SELECT_V2")


class OperatorChoice(Struct, frozen=True):
    """The operators that compute in integers, and their parameters.

    Args:
        kinds: the activation type of each operator that computes in integers: int8 or int16.
        scales: the scales and zero points of the inputs and outputs of the operators of each type.
        rules: the rules for the treatment of layers.
        reasons: why other operators stay float, unless that is expected.
    """

    kinds: Mapping[Op, DType]
    scales: Mapping[DType, Scales]
    rules: Rules
    reasons: Mapping[Op, str]

    def settings_of(self, op: Op) -> Settings:
        """Return the settings that the rules specify for an operator."""
        return settings_of(op, self.rules)

    def notes(self) -> tuple[str, ...]:
        """Return a sentence for each kind of operator in float, and for each rescaled tensor."""
        alike: dict[tuple[str, str], list[str]] = {}
        for op, reason in self.reasons.items():
            alike.setdefault((op.code, reason), []).append(op.outputs[0].name)
        floats = [
            f"{code} {listed(names, _SHOWN)} in float: {reason}"
            for (code, reason), names in alike.items()
        ]
        rescaled = [
            f"{r.op.code} {r.op.outputs[0].name!r} rescales {r.value.name!r}, which has a scale "
            f"{r.growth:.3g} times finer and other readers"
            for scales in self.scales.values()
            for r in scales.rescaled
        ]
        return (*floats, *rescaled)


def choose(
    program: Program,
    options: Integers,
    ranges: Mapping[DType, Mapping[str, Range]],
    float_ops: frozenset[Op] = frozenset(),
) -> OperatorChoice:
    """Choose the operators that compute in integers.

    Args:
        program: the float program.
        options: the options.
        ranges: for each activation type, the ranges of tensors by name.
        float_ops: operators that stay float.
    """
    ops = frozenset(op.node.op for op in program.ops if op.node is not None)
    rules = Rules("quantize", options.rules, eightbit=ops - _LOOKUP_OPS, modes=tuple(MODES))
    reasons: dict[Op, str] = {}
    kinds: dict[Op, DType] = {}
    computing: dict[Value, DType] = {}
    for op in program.ops:
        if op.code in SIZES or is_state_op(op) or not (results(op) or activations(op)):
            continue
        if op in float_ops:
            continue
        settings = settings_of(op, rules)
        kind = _kind(op, settings, options, computing)
        reason = _hindrance(op, kind, settings)
        if reason is None:
            kinds[op] = kind
            computing.update(dict.fromkeys(op.outputs, kind))
        elif reason:
            reasons[op] = reason
    readers = Readers(program)
    while True:
        unsupported: dict[Op, str] = {}
        scales: dict[DType, Scales] = {}
        # Operators of each type have their own scales; QUANTIZE operators convert between them.
        for kind in dict.fromkeys((options.kind, *MODES.values())):
            chosen = [op for op in kinds if kinds[op] is kind]
            scales[kind] = Scales(program, chosen, kind, ranges[kind])
            unsupported |= _unknown(chosen, scales[kind], ranges[kind]) or hidden_by_masks(
                chosen, readers, scales[kind], kind, ranges[kind]
            )
        lonely = _lonely(program, list(kinds), options) if not unsupported else set()
        reasons.update(unsupported)
        if not unsupported and not lonely:
            return OperatorChoice(kinds, scales, rules, reasons)
        kinds = {op: kind for op, kind in kinds.items() if op not in {*unsupported, *lonely}}


def _kind(op: Op, settings: Settings, options: Integers, computing: Mapping[Value, DType]) -> DType:
    """Return the activation type of an operator.

    Without a rule, operators that only move elements have the type of the operators that compute
    them, and so do operators that are not nodes of the graph.
    """
    if settings.mode == "int8" or settings.mode == "int16x8":
        return MODES[settings.mode]
    kernel = KERNELS.get(op.code)
    if kernel is None or (kernel.rule != "same" and op.node is not None):
        return options.kind
    sources = {computing[value] for value in operands(op) if value in computing}
    if not sources:
        return options.kind
    kind = DType.INT16 if DType.INT16 in sources else DType.INT8
    return kind if kind in kernel.types else options.kind


def settings_of(op: Op, rules: Rules) -> Settings:
    """Return the settings that rules specify for an operator, based on its original node."""
    if op.node is None:
        return Settings("nodes")
    # 8 bits are too coarse for box coordinates.
    return Settings("float") if KEEP_FLOAT in op.node.attrs else rules.settings(op.node)


def tensors_with_ranges(program: Program) -> tuple[str, ...]:
    """Return the names of all tensors whose range determines a scale, in order."""
    ops = [op for op in program.ops if op.code in KERNELS and not is_state_op(op)]
    eight = [op for op in ops if DType.INT8 in KERNELS[op.code].types]
    scales = Scales(program, eight, DType.INT8, {})
    names: dict[str, None] = {}
    for op in ops:
        for value in (*operands(op), *results(op)):
            if value.data is None and not scales.is_fixed(value):
                names[value.alike or value.name] = None
        if op.code == SEQUENCE:
            names.update(dict.fromkeys(inner_ranges(op)))
    # First states that other operators compute.
    names.update(
        (value.name, None)
        for op in program.ops
        if is_state_op(op) and op.code == "TILE"
        for value in op.operands[:1]
    )
    return tuple(names)


def fixed_ranges(program: Program, kind: DType) -> dict[str, Range]:
    """Return the output ranges of operators with fixed scales, including those that stay float."""
    ranges: dict[str, Range] = {}
    for op in program.ops:
        kernel = KERNELS.get(op.code)
        if kernel is not None and kind in kernel.fixed:
            ranges[op.outputs[0].name] = IntegerSteps(kind, *kernel.fixed[kind]).span
    return ranges


def _hindrance(op: Op, kind: DType, settings: Settings) -> str | None:
    """Return why an operator stays float ("" if a rule excludes it), or None if it does not."""
    if settings.mode in ("weights", "float"):
        return ""
    if is_loop(op):
        return "the ranges of the tensors in it are not known"
    kernel = KERNELS.get(op.code)
    if kernel is None or kind not in kernel.types:
        return f"LiteRT has no kernel of {kind.short} for it"
    layer = LAYERS.get(op.code)
    if layer is None:
        return hindrance(op) if op.code == SEQUENCE else None
    weights = op.constant(layer.weights)
    if weights is None or not is_float(op.inputs[layer.weights]):
        return "its weights are computed"
    if not np.isfinite(weights).all():
        return "its weights are not finite"
    bias = op.input_at(layer.bias)
    if bias is not None and (bias.data is None or not np.isfinite(bias.data).all()):
        return "its bias is not a finite constant"
    return None


def _unknown(ops: Sequence[Op], scales: Scales, ranges: Mapping[str, Range]) -> dict[Op, str]:
    """Return the operators with an unknown range, and the reason."""
    reasons: dict[Op, str] = {}
    for op in ops:
        inner = inner_ranges(op) if op.code == SEQUENCE else ()
        if not set(inner) <= set(ranges):
            reasons[op] = "the range of its cell states is not known"
            continue
        for slot in scales.slots(op):
            if scales.steps(slot) is None:
                value = slot if isinstance(slot, Value) else op.inputs[slot[1]]
                name = "" if value is None else value.name
                reasons[op] = f"the range of {name!r} is not known"
                break
    return reasons


def _lonely(program: Program, ops: Sequence[Op], options: Integers) -> set[Op]:
    """Return operators that only select numbers and have no integer neighbors.

    Quantizing their inputs would lose precision without a benefit.
    """
    accepted = {op for op in ops if KERNELS[op.code].rule != "same"}
    waiting = [op for op in ops if op not in accepted]
    ends = _integer_ends(program, options)
    readers = Readers(program)
    reading: dict[Value, list[Op]] = {}
    for op in ops:
        for value in op.operands:
            reading.setdefault(value, []).append(op)

    def is_near(op: Op) -> bool:
        if any(v in ends for v in (*operands(op), *op.outputs)):
            return True
        if any(readers.maker(value) in accepted for value in operands(op)):
            return True
        return any(reader in accepted for v in results(op) for reader in reading.get(v, ()))

    while near := [op for op in waiting if is_near(op)]:
        accepted.update(near)
        waiting = [op for op in waiting if op not in accepted]
    return set(waiting)


def _integer_ends(program: Program, options: Integers) -> set[Value]:
    """Return inputs and outputs that are integers in the file."""
    inputs = program.inputs if options.input_type != "float" else ()
    outputs = program.outputs if options.output_type != "float" else ()
    return {port.value for port in (*inputs, *outputs)}


_SOFTMAXES: Final = frozenset({"SOFTMAX", "LOG_SOFTMAX"})
# exp(-8) is less than half a step of an int8 softmax, so one of two adjacent inputs vanishes.
_MOST_STEP: Final = 8.0


def hidden_by_masks(
    ops: Sequence[Op], readers: Readers, scales: Scales, kind: DType, ranges: Mapping[str, Range]
) -> dict[Op, str]:
    """Return softmaxes whose inputs' scale is too coarse because of a mask, and the reason.

    The operators that apply the mask are included.

    Args:
        ops: the operators that compute in integers.
        readers: the producers of values.
        scales: the scales of the operators.
        kind: int8 or int16.
        ranges: the ranges of tensors by name.
    """
    reasons: dict[Op, str] = {}
    chosen = frozenset(ops)
    for op in ops:
        if op.code not in _SOFTMAXES:
            continue
        masked, steps = op.inputs[0], scales.steps(scales.slot(op, 0))
        if masked is None or steps is None or steps.scale <= _MOST_STEP:
            continue
        step = f"one step of {masked.name!r} would be {steps.scale:.3g}"
        reason = f"{step}, more than a softmax can distinguish"
        reasons[op] = reason
        for maker in _masking(masked, readers, kind, ranges):
            if maker in chosen:
                reasons[maker] = reason
    return reasons


def _masking(
    masked: Value, readers: Readers, kind: DType, ranges: Mapping[str, Range]
) -> Iterator[Op]:
    """Yield the operators that compute a mask's values, and those that pass them on."""
    waiting, seen = [masked], {masked}
    while waiting:
        value = waiting.pop()
        maker = readers.maker(value)
        span = ranges.get(value.name, ranges.get(value.alike))
        if maker is None or span is None or steps_of(span, kind).scale <= _MOST_STEP:
            continue
        yield maker
        if maker.code not in KERNELS or KERNELS[maker.code].rule != "same":
            continue
        sources = set(operands(maker)) - seen
        seen |= sources
        waiting += sources


def is_loop(op: Op) -> bool:
    """Return whether an operator is a loop."""
    return op.code == "WHILE"


def prefix_of(loop: Node) -> str:
    """Return how the names of the tensors in a loop's body begin outside of the loop."""
    return f"{loop.name}/"


def ranges_within(loop: Op, ranges: Mapping[str, Range]) -> dict[str, Range]:
    """Return the ranges of the tensors in the body of a loop, by their names there.

    Other operators have none.
    """
    if loop.node is None or not is_loop(loop):
        return {}
    prefix = prefix_of(loop.node)
    return {
        name.removeprefix(prefix): span for name, span in ranges.items() if name.startswith(prefix)
    }


def moved_values(body: Program) -> frozenset[Value]:
    """Return the loop variables of which a step only selects elements, such as a sequence."""
    computed = {
        value
        for op in body.ops
        if op.code in KERNELS and KERNELS[op.code].rule != "same"
        for value in op.operands
    }
    return frozenset(port.value for port in body.inputs) - computed


def float_ops(body: Program) -> frozenset[Op]:
    """Return the operators of a loop's body that stay float.

    Those that select elements of a whole sequence would need the integers of all elements in each
    step. Those that compute the next state by arithmetic would add an error in each step.
    """
    moved, readers = moved_values(body), Readers(body)
    chosen = {op for op in body.ops if any(value in moved for value in op.operands)}
    waiting = [port.value for port in body.outputs]
    while waiting:
        maker = readers.maker(waiting.pop(), *_ARITHMETIC)
        if maker is not None and maker not in chosen:
            chosen.add(maker)
            waiting += maker.operands
    return frozenset(chosen)
