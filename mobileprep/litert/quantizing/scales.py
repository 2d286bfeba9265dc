"""Determine scales and zero points, and which tensors share them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.formats.dtypes import DType
from mobileprep.graph.tensor import Array
from mobileprep.litert.program import Op, Program, Value
from mobileprep.litert.quantizing.kernels import (
    KERNELS,
    LAYERS,
    IntegerSteps,
    Range,
    span_of,
    steps_of,
    union,
)
from mobileprep.litert.quantizing.sequences import SEQUENCE

# Limits the multiplier that rescales a layer's sums, input scale * weight scale / output scale, to
# 64, which kernels support. The weight scale is the largest weight / 127.
_MOST_SHARE: Final = 127 * 64

# A tensor whose scale would grow by more than this factor in a group keeps its own. A factor of 2
# loses one bit.
_MOST_GROWTH: Final = 2.0

# Operators that clip at a constant, which must fit in 32 bits when divided by the output scale.
_CLIPPING: Final = frozenset({"RELU6", "RELU_N1_TO_1"})
_LEAST_CLIPPED: Final = 2.0**-28

Slot = Value | tuple[Op, int]
"""A tensor that is computed or fed, or an operator's input that has its own scale there."""


def activations(op: Op) -> list[int]:
    """Return the indices of an operator's inputs that are quantized by their range."""
    layer = LAYERS.get(op.code)
    if layer is not None:
        return [layer.image]
    if op.code == SEQUENCE:
        return [0]
    return [i for i, value in enumerate(op.inputs) if is_float(value)]


def operands(op: Op) -> list[Value]:
    """Return the inputs of an operator that are quantized by their range."""
    return [value for i in activations(op) if (value := op.inputs[i]) is not None]


def results(op: Op) -> list[Value]:
    """Return the outputs of an operator that are quantized."""
    return [value for value in op.outputs if is_float(value)]


def is_float(value: Value | None) -> bool:
    """Return whether a value is float32."""
    return value is not None and value.dtype is DType.FLOAT


class Rescaled(Struct, frozen=True, eq=False):
    """An input that an operator rescales because other readers need a finer scale.

    Args:
        op: the operator.
        value: the tensor.
        growth: the scale that the operator needs, divided by the tensor's own.
    """

    op: Op
    value: Value
    growth: float


class Scales:
    """Scale and zero point of every tensor that the integer operators of a program read or write.

    Tensors that an operator requires to have equal scales form a group, whose range is the union of
    their ranges. Two kinds of tensors stay outside the group and are rescaled before the operator:
    those whose scale the runtime fixes, and those of small range that other operators read too.

    Args:
        program: the whole program.
        ops: its operators that compute in integers, in order.
        kind: int8 or int16.
        ranges: the ranges of tensors by name.
    """

    def __init__(
        self, program: Program, ops: Sequence[Op], kind: DType, ranges: Mapping[str, Range]
    ) -> None:
        self.rescaled: list[Rescaled] = []
        self._kind = kind
        self._parents: dict[Slot, Slot] = {}
        self._fixed: dict[Slot, IntegerSteps] = {}
        self._own: set[tuple[Op, int]] = set()
        self._least: dict[Slot, float] = {}
        self._clipped = _clipped(program, ops, ranges)
        for op in ops:
            kernel = KERNELS[op.code]
            if kernel.rule == "fixed":
                self._fixed[op.outputs[0]] = IntegerSteps(kind, *kernel.fixed[kind])
        alike = [op for op in ops if KERNELS[op.code].rule == "same"]
        for op in alike:
            if not _is_mixed(op):
                self._join([*_computed(op), *results(op)])
        mixed = [op for op in alike if _is_mixed(op)]
        if mixed:
            self._join_all(program, ops, mixed, ranges)
        for op in alike:
            self._join(
                [*results(op), *((op, i) for i in activations(op) if op.constant(i) is not None)]
            )
        self._spans = self._spans_of(ops, ranges)
        for op in ops:
            self._hold(op)

    def slot(self, op: Op, index: int) -> Slot:
        """Return the slot of an operator's input."""
        value = op.inputs[index]
        if value is None or value.data is not None or (op, index) in self._own:
            return (op, index)
        return value

    def slots(self, op: Op) -> list[Slot]:
        """Return the slots of an operator's quantized inputs, then its quantized outputs."""
        return [*(self.slot(op, i) for i in activations(op)), *results(op)]

    def steps(self, slot: Slot) -> IntegerSteps | None:
        """Return the quantization of a tensor, or None if its range is unknown."""
        root = self._root(slot)
        if root in self._fixed:
            return self._fixed[root]
        span = self._spans.get(root)
        return None if span is None else steps_of(span, self._kind, self._least.get(root, 0.0))

    def is_fixed(self, slot: Slot) -> bool:
        """Return whether the runtime fixes a tensor's scale and zero point."""
        return self._root(slot) in self._fixed

    def _join_all(
        self,
        program: Program,
        ops: Sequence[Op],
        mixed: Sequence[Op],
        ranges: Mapping[str, Range],
    ) -> None:
        """Join the operands of all mixed operators, except those to be rescaled."""
        self._spans = self._spans_of(ops, ranges)
        alone = {v: (self._root(v), self.steps(v)) for op in mixed for v in _computed(op)}
        before = dict(self._parents)
        reading = self._reading(program, ops, frozenset(root for root, _ in alone.values()))

        def join() -> None:
            self._parents = dict(before)
            for op in mixed:
                self._join_mixed(op)
            self._spans = self._spans_of(ops, ranges)

        def growth(value: Value, result: Value) -> float:
            own, joined = alone[value][1], self.steps(result)
            return 1.0 if own is None or joined is None else joined.scale / own.scale

        needed: dict[Op | None, float] = {op: self._scale_alone(op) for op in mixed}

        def is_read_elsewhere(value: Value, op: Op) -> bool:
            """Return whether another reader needs a scale much finer than the group's."""
            joined = self.steps(results(op)[0])
            limit = 0.0 if joined is None else joined.scale / _MOST_GROWTH
            readers = reading[alone[value][0]]
            return any(needed.get(reader, 0.0) < limit for reader in readers if reader is not op)

        join()
        # From the last operator to the first: a rescaled input no longer widens the groups of
        # preceding operators.
        for op in reversed(mixed):
            done = len(self.rescaled)
            for index in activations(op):
                value = op.inputs[index]
                if value is None or value.data is not None or (op, index) in self._own:
                    continue
                more = growth(value, results(op)[0])
                if more > _MOST_GROWTH and is_read_elsewhere(value, op):
                    self._own.add((op, index))
                    self.rescaled.append(Rescaled(op, value, more))
            if len(self.rescaled) > done:
                join()

    def _scale_alone(self, op: Op) -> float:
        """Return the scale of a group with only the operands of one operator."""
        span: Range | None = None
        for slot in (*results(op), *(self.slot(op, i) for i in activations(op))):
            fixed = self._fixed.get(self._root(slot))
            span = union(span, self._spans.get(self._root(slot)) if fixed is None else fixed.span)
        return math.inf if span is None else steps_of(span, self._kind).scale

    def _reading(
        self, program: Program, ops: Sequence[Op], roots: frozenset[Slot]
    ) -> dict[Slot, list[Op | None]]:
        """Return the readers of each group, except operators in the group; None is the caller."""
        readers: dict[Slot, list[Op | None]] = {root: [] for root in roots}
        integer = frozenset(ops)
        for op in program.ops:
            ends = {self._root(v) for v in results(op)} if op in integer else frozenset[Slot]()
            for value in op.inputs:
                if value is not None and (root := self._root(value)) in roots - ends:
                    readers[root].append(op)
        for port in program.outputs:
            if (root := self._root(port.value)) in roots:
                readers[root].append(None)
        return readers

    def _join_mixed(self, op: Op) -> None:
        """Join several inputs with the output; fixed scales join only if they are all equal."""
        values = _computed(op)
        fixed = {self._fixed.get(self._root(value)) for value in values}
        is_free = not any((op, i) in self._own for i in activations(op))
        if len(fixed) == 1 and None not in fixed and is_free and not self._widening(op):
            self._join([*values, *results(op)])
            return
        for index in activations(op):
            value = op.inputs[index]
            if value is not None and value.data is None and self.is_fixed(value):
                self._own.add((op, index))
        self._join([*results(op), *(self.slot(op, i) for i in activations(op))])

    def _widening(self, op: Op) -> bool:
        """Return whether constants widen the range of an operator's output."""
        constants = [value.data for value in operands(op) if value.data is not None]
        if not KERNELS[op.code].clips:
            return bool(constants)
        fixed = [self._fixed[self._root(v)] for v in _computed(op) if self.is_fixed(v)]
        return any(_shows(op, data, steps) for data in constants for steps in fixed)

    def _hold(self, op: Op) -> None:
        """Record the minimum output scale that the runtime requires for an operator."""
        input_steps = [self.steps(self.slot(op, i)) for i in activations(op)]
        scale = max((steps.scale for steps in input_steps if steps is not None), default=0.0)
        factor, power = KERNELS[op.code].least
        least = factor * scale**power
        layer = LAYERS.get(op.code)
        weights = None if layer is None else op.constant(layer.weights)
        if weights is not None:
            least = scale * float(np.abs(weights).max(initial=0)) / _MOST_SHARE
        if _clips(op):
            least = max(least, _LEAST_CLIPPED)
        for value in results(op):
            root = self._root(value)
            self._least[root] = max(self._least.get(root, 0.0), least)

    def _spans_of(self, ops: Iterable[Op], ranges: Mapping[str, Range]) -> dict[Slot, Range]:
        spans: dict[Slot, Range] = {}
        seen: set[Slot] = set()
        for op in ops:
            for slot in self.slots(op):
                if slot in seen:
                    continue
                seen.add(slot)
                span = union(spans.get(self._root(slot)), self._span(slot, ranges))
                if span is not None:
                    spans[self._root(slot)] = span
        return spans

    def _span(self, slot: Slot, ranges: Mapping[str, Range]) -> Range | None:
        if isinstance(slot, Value):
            if slot in self._clipped:
                return None
            return ranges.get(slot.name, ranges.get(slot.alike))
        op, index = slot
        value = op.inputs[index]
        if value is None:
            return None
        if value.data is None:
            fixed = self._fixed.get(self._root(value))
            return self._span(value, ranges) if fixed is None else fixed.span
        return None if KERNELS[op.code].clips else span_of(value.data)

    def _root(self, slot: Slot) -> Slot:
        root = slot
        while root in self._parents:
            root = self._parents[root]
        while slot != root:
            following = self._parents[slot]
            self._parents[slot], slot = root, following
        return root

    def _join(self, slots: Sequence[Slot]) -> None:
        for slot in slots[1:]:
            root, other = self._root(slots[0]), self._root(slot)
            if root == other:
                continue
            # A fixed scale applies to the whole group.
            if other in self._fixed:
                root, other = other, root
            self._parents[other] = root


def _clips(op: Op) -> bool:
    """Return whether an operator, or its fused activation, clips at a number other than 0."""
    return op.code in _CLIPPING or op.option("fused_activation_function") in _CLIPPING


def _clipped(program: Program, ops: Sequence[Op], ranges: Mapping[str, Range]) -> frozenset[Value]:
    """Return the tensors whose only reader clips them at a constant.

    They need the range of the clipped values only: values beyond it have the same result.
    """
    readers = Counter(value for op in program.ops for value in op.inputs if value is not None)
    readers.update(port.value for port in program.outputs)
    return frozenset(
        value
        for op in ops
        if op.code in ("MINIMUM", "MAXIMUM") and op.outputs[0].name in ranges
        for value in _computed(op)
        if len(_computed(op)) < len(op.inputs) and readers[value] == 1
    )


def _shows(op: Op, constant: Array, steps: IntegerSteps) -> bool:
    """Return whether elements of a constant outside the representable range reach the output."""
    low, high = steps.span
    is_above = constant.max(initial=low) > high + steps.scale
    is_below = constant.min(initial=high) < low - steps.scale
    return bool((is_above and op.code != "MINIMUM") or (is_below and op.code != "MAXIMUM"))


def _computed(op: Op) -> list[Value]:
    """Return the distinct inputs of an operator that are not constants."""
    return list(dict.fromkeys(value for value in operands(op) if value.data is None))


def _is_mixed(op: Op) -> bool:
    """Return whether a result may exceed the range of one of an operator's inputs."""
    return len(_computed(op)) > 1 or any(value.data is not None for value in operands(op))
