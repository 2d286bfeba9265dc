"""The tensors that an int8 program rounds, and float programs that round one of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.litert.program import Op, Port, Program, Value, builtin
from mobileprep.litert.quantizing.choice import OperatorChoice
from mobileprep.litert.quantizing.exceptions import FLOAT, Level, Unit
from mobileprep.litert.quantizing.kernels import KERNELS, LAYERS, IntegerSteps
from mobileprep.litert.quantizing.scales import operands, results
from mobileprep.litert.weights import LAYER_AXES, quantized_weights

# Operators that keep the scale of their input but compute new values.
_COMPUTING: Final = frozenset({"AVERAGE_POOL_2D", "RESIZE_BILINEAR"})


class RoundedTensor(Struct, frozen=True, eq=False):
    """A tensor that int8 operators compute or read.

    Args:
        value: the tensor.
        steps: the int8 quantization.
        writer: the index of the unit that computes it in int8, or None.
        readers: the operators that read it in int8, by the index of their unit.
        has_others: whether operators in float or outputs read it, too.
    """

    value: Value
    steps: IntegerSteps
    writer: int | None
    readers: Mapping[int, tuple[Op, ...]]
    has_others: bool


class IntegerUnits:
    """The int8 operators of a program in units that are excepted together, and their tensors.

    Operators of the same node are a unit. Operators that only move the elements of one tensor, and
    operators that are not nodes of the graph, belong to the unit that computes their input.

    Args:
        program: the float program.
        choice: the operators that compute in integers.
    """

    def __init__(self, program: Program, choice: OperatorChoice) -> None:
        self.program = program
        self._choice = choice
        self._scales = choice.scales[DType.INT8]
        self._eight = [op for op in program.ops if choice.kinds.get(op) is DType.INT8]
        self._makers = {value: op for op in program.ops for value in op.outputs}
        self._unit_of: dict[Op, int] = {}
        self._ops: list[list[Op]] = []
        self._group()
        macs = {op: multiply_accumulates(op) for op in program.ops}
        self.total_macs = sum(macs.values())
        """Multiply-accumulates of the program for one sample, without loops and branches."""
        self.units = tuple(self._units(macs))
        self.tensors = tuple(self._tensors())

    @property
    def int8_macs(self) -> float:
        """The share of multiply-accumulates that int8 operators compute."""
        return sum(unit.macs for unit in self.units)

    def layers(self) -> Iterator[tuple[int, Op]]:
        """Yield the operators with quantized weights, and their unit."""
        for op in self._eight:
            if op.code in LAYERS:
                yield self._unit_of[op], op

    def names(self, levels: Mapping[int, Level]) -> dict[str, list[str]]:
        """Return the nodes of each mode of a rule, for the levels of some units.

        Nodes with an operator that has no int16 kernel compute in float. A mode without nodes is
        omitted.
        """
        modes: dict[str, dict[str, None]] = {"int16x8": {}, "float": {}}
        for unit, level in sorted(levels.items()):
            alike: dict[str, list[Op]] = {}
            for op in self._ops[unit]:
                if op.node is not None:
                    alike.setdefault(op.node.name, []).append(op)
            for name, ops in alike.items():
                has_kernel = all(DType.INT16 in KERNELS[op.code].types for op in ops)
                mode = "int16x8" if has_kernel and level != FLOAT else "float"
                modes[mode][name] = None
        return {mode: list(names) for mode, names in modes.items() if names}

    def _group(self) -> None:
        """Assign each int8 operator to a unit."""
        by_node: dict[str, int] = {}
        for op in self._eight:
            unit = self._unit_before(op)
            if unit is None and op.node is not None:
                unit = by_node.get(op.node.name)
            if unit is None:
                unit = len(self._ops)
                self._ops.append([])
            if op.node is not None:
                by_node.setdefault(op.node.name, unit)
            self._ops[unit].append(op)
            self._unit_of[op] = unit

    def _unit_before(self, op: Op) -> int | None:
        """Return the unit that an operator follows without a rule, or None."""
        source = self._moved(op)
        if source is None and op.node is None:
            source = next((v for v in operands(op) if v.data is None), None)
        maker = None if source is None else self._makers.get(source)
        return None if maker is None else self._unit_of.get(maker)

    def _moved(self, op: Op) -> Value | None:
        """Return the only input, computed in int8, of an operator that moves its elements."""
        if KERNELS[op.code].rule != "same" or op.code in _COMPUTING:
            return None
        values = list(dict.fromkeys(v for v in operands(op) if v.data is None))
        if len(values) != 1 or len(results(op)) != 1:
            return None
        is_integer = self._makers.get(values[0]) in self._unit_of
        steps = [self._scales.steps(value) for value in (values[0], results(op)[0])]
        return values[0] if is_integer and steps[0] == steps[1] else None

    def _units(self, macs: Mapping[Op, int]) -> Iterator[Unit]:
        elements = {op: math.prod(_sizes(op.outputs[0])) for op in self._eight}
        weights = {op: _weight_count(op) for op in self.program.ops}
        totals = [max(sum(some.values()), 1) for some in (macs, elements, weights)]
        for ops in self._ops:
            shares = [
                sum(some[op] for op in ops) / total
                for some, total in zip((macs, elements, weights), totals, strict=True)
            ]
            nodes = [op.node for op in ops if op.node is not None]
            is_fixed = not nodes or any(map(self._choice.rules.decide, nodes))
            yield Unit(shares[0], shares[1], shares[2], is_fixed)

    def _tensors(self) -> Iterator[RoundedTensor]:
        """Yield each tensor once; tensors with the same elements count as the first of them."""
        first: dict[Value, Value] = {}
        for op in self._eight:
            source = self._moved(op)
            if source is not None:
                first[results(op)[0]] = first.get(source, source)
        readers: dict[Value, dict[int, list[Op]]] = {}
        others = {first.get(port.value, port.value) for port in self.program.outputs}
        for op in self.program.ops:
            unit = self._unit_of.get(op)
            moved = None if unit is None else self._moved(op)
            for value in operands(op) if unit is not None else op.operands:
                root = first.get(value, value)
                if unit is None:
                    others.add(root)
                elif value is not moved and value.data is None:
                    readers.setdefault(root, {}).setdefault(unit, []).append(op)
        written = [value for op in self._eight for value in results(op)]
        for value in dict.fromkeys((*readers, *written)):
            steps = self._scales.steps(value)
            if value in first or steps is None:
                continue
            maker = self._makers.get(value)
            writer = None if maker is None else self._unit_of.get(maker)
            reading = {unit: tuple(ops) for unit, ops in readers.get(value, {}).items()}
            if writer is not None or reading:
                yield RoundedTensor(value, steps, writer, reading, value in others)

    def with_rounded(self, tensor: RoundedTensor, reader: int | None = None) -> Program:
        """Return the float program with one tensor rounded, for all or for one of its readers."""
        value = tensor.value
        stored = replace(
            value,
            name=f"{value.name}_rounded",
            dtype=DType.INT8,
            quantization=tensor.steps.quantization,
        )
        rounded = replace(value, name=f"{value.name}_float")
        pair = [
            builtin("QUANTIZE", [value], [stored]),
            builtin("DEQUANTIZE", [stored], [rounded]),
        ]
        chosen = None if reader is None else frozenset(tensor.readers[reader])
        maker = self._makers.get(value)
        ops = [] if maker is not None else [*pair]
        for op in self.program.ops:
            is_read = value in op.operands and (chosen is None or op in chosen)
            ops.append(_reading(op, value, rounded) if is_read else op)
            ops += pair if op is maker else []
        outputs = self.program.outputs
        if chosen is None:
            outputs = tuple(Port(p.name, rounded if p.value is value else p.value) for p in outputs)
        return replace(self.program, ops=tuple(ops), outputs=outputs)

    def with_int8_weights(self, layers: Sequence[Op]) -> Program:
        """Return the float program with the weights of some layers rounded to int8."""
        chosen = frozenset(layers)
        return self.program.with_ops(
            [self._with_rounded_weights(op) if op in chosen else op for op in self.program.ops]
        )

    def _with_rounded_weights(self, op: Op) -> Op:
        weights = op.inputs[LAYERS[op.code].weights]
        assert weights is not None
        assert weights.data is not None
        settings = self._choice.settings_of(op).weights
        data, details = quantized_weights(weights.data, LAYER_AXES[op.code], settings)
        shape = [1] * data.ndim
        if details.scales.size > 1:
            shape[details.axis] = -1
        floats = data.astype(np.float32) * details.scales.reshape(shape).astype(np.float32)
        return _reading(op, weights, replace(weights, data=floats))


def _reading(op: Op, value: Value, other: Value) -> Op:
    """Return an operator that reads another value."""
    return replace(op, inputs=tuple(other if v is value else v for v in op.inputs))


def _sizes(value: Value) -> tuple[int, ...]:
    """Return the sizes of a value; unknown sizes count as 1."""
    return tuple(abs(size) for size in value.shape or ())


def _weight_count(op: Op) -> int:
    layer = LAYERS.get(op.code)
    weights = None if layer is None else op.constant(layer.weights)
    return 0 if weights is None else weights.size


def multiply_accumulates(op: Op) -> int:
    """Return the number of multiply-accumulates of a layer or matrix product, for one sample."""
    if op.code == "BATCH_MATMUL" and op.inputs[0] is not None:
        rows = _sizes(op.inputs[0])
        inner = rows[-2 if op.option("adj_x", False) else -1] if len(rows) > 1 else 1
        return math.prod(_sizes(op.outputs[0])) * inner
    layer = LAYERS.get(op.code)
    weights = None if layer is None else op.inputs[layer.weights]
    if layer is None or weights is None or not weights.shape:
        return 0
    sizes = _sizes(weights)
    if op.code == "TRANSPOSE_CONV":
        image = op.inputs[layer.image]
        return 0 if image is None else math.prod(_sizes(image)) * math.prod(sizes[:-1])
    products = sizes[1:-1] if op.code == "DEPTHWISE_CONV_2D" else sizes[1:]
    return math.prod(_sizes(op.outputs[0])) * math.prod(products)
