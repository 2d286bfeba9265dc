"""The intermediate form of a lowered graph: operators in order, and the values between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.layout import layout
from mobileprep.formats.tflite.records import Options, OptionValue, Quantization
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array


class Value(Struct, frozen=True, eq=False):
    """A tensor, compared by identity.

    Args:
        name: the name in the file.
        dtype: the element type.
        shape: the sizes, -1 if unknown; None if even the rank is unknown.
        data: the elements of a constant.
        quantization: the scales and zero points of quantized elements.
        alike: a tensor of the graph with the same elements in another order, if any.
        is_variable: whether an operator that reads it also changes it.
    """

    name: str
    dtype: DType
    shape: TensorShape
    data: Array | None = None
    quantization: Quantization | None = None
    alike: str = ""
    is_variable: bool = False

    @property
    def rank(self) -> int | None:
        """The number of dimensions, or None if unknown."""
        return None if self.shape is None else len(self.shape)


class Op(Struct, frozen=True, eq=False):
    """A LiteRT operator.

    Args:
        code: the builtin's name, or ``CUSTOM``.
        inputs: the inputs; None for an omitted optional one.
        outputs: the outputs; each value is the output of one operator.
        options: the builtin's options.
        custom: the name of a custom operator.
        custom_options: the options of a custom operator.
        node: the original node of the graph.
        subgraphs: the programs that it runs, in the order of the options with their indices.
        intermediates: tensors that only describe the quantization of inner results.
    """

    code: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    options: Options | None = None
    custom: str = ""
    custom_options: bytes = b""
    node: Node | None = None
    subgraphs: tuple[Program, ...] = ()
    intermediates: tuple[Value, ...] = ()

    @property
    def operands(self) -> tuple[Value, ...]:
        """The inputs that are not omitted."""
        return tuple(value for value in self.inputs if value is not None)

    def input_at(self, index: int) -> Value | None:
        """Return an input, or None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int) -> Array | None:
        """Return the elements of a constant input, or None for others."""
        value = self.input_at(index)
        return None if value is None else value.data

    def option(self, name: str, default: OptionValue = 0) -> OptionValue:
        """Return the value of an option."""
        return default if self.options is None else self.options.values.get(name, default)

    def with_options(self, **changes: OptionValue) -> Op:
        """Return the operator with some options changed."""
        assert self.options is not None
        values = {**self.options.values, **changes}
        return replace(self, options=replace(self.options, values=values))


# Builtins whose tables of options are not named after them.
_OPTIONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), "Pool2DOptions"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_ALL", "REDUCE_ANY"), "ReducerOptions"),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), "ReducerOptions"),
    **dict.fromkeys(("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"), "RandomOptions"),
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "DYNAMIC_UPDATE_SLICE": "",
    "L2_NORMALIZATION": "L2NormOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
}


def builtin(
    code: str, inputs: Sequence[Value | None], outputs: Sequence[Value], /, **options: OptionValue
) -> Op:
    """Return a builtin operator with its table of options, if it has one."""
    table = _OPTIONS.get(code, _tables().get(code.replace("_", "").lower(), ""))
    return Op(code, tuple(inputs), tuple(outputs), Options(table, options) if table else None)


def integers(name: str, numbers: object) -> Value:
    """Return an int32 constant of integers or nested sequences of integers."""
    array = np.array(numbers, np.int32)
    return Value(name, DType.INT32, array.shape, array)


def reshape(value: Value, output: Value) -> Op:
    """Return a RESHAPE to the shape of its output."""
    sizes = output.shape or ()
    shape = integers(f"{output.name}_shape", sizes)
    return builtin("RESHAPE", [value, shape], [output], new_shape=sizes)


@cache
def _tables() -> Mapping[str, str]:
    """Return the tables of options by lowercase name."""
    tables = layout().unions["BuiltinOptions"]
    return {table.removesuffix("Options").lower(): table for table in tables}


class Port(Struct, frozen=True):
    """An input or output of the program: its name in the signature, and the value."""

    name: str
    value: Value


class Program(Struct, frozen=True):
    """A subgraph whose values are not numbered yet.

    Args:
        inputs: the values to feed, in order.
        outputs: the values to fetch, in order.
        ops: the operators in execution order.
        name: the name of the subgraph.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    ops: tuple[Op, ...]
    name: str = "main"

    def with_ops(self, ops: Sequence[Op]) -> Program:
        """Return the program with other operators that compute the same outputs."""
        return Program(self.inputs, self.outputs, tuple(ops), self.name)

    def mapped(self, change: Callable[[Program], Program]) -> Program:
        """Apply a change to the program and all nested subgraphs, innermost first."""
        ops = [
            replace(op, subgraphs=tuple(p.mapped(change) for p in op.subgraphs))
            if op.subgraphs
            else op
            for op in self.ops
        ]
        return change(self.with_ops(ops))


@dataclass
class Readers:
    """The readers and producers of each value of a program; each fetch counts as a reader."""

    program: Program
    counts: dict[Value, int] = field(default_factory=dict)
    makers: dict[Value, Op] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op in self.program.ops:
            for value in op.operands:
                self.counts[value] = self.counts.get(value, 0) + 1
            self.makers.update(dict.fromkeys(op.outputs, op))
        for port in self.program.outputs:
            self.counts[port.value] = self.counts.get(port.value, 0) + 1

    def once(self, value: Value) -> bool:
        """Return whether a value is read exactly once."""
        return self.counts.get(value) == 1

    def maker(self, value: Value | None, *codes: str) -> Op | None:
        """Return the operator that computes a value, if it is one of these codes, or None.

        Without codes, any operator is returned; constants and inputs have none.
        """
        op = None if value is None else self.makers.get(value)
        return None if op is None or (codes and op.code not in codes) else op


def number_of(value: Value | None) -> float | None:
    """Return the element of a constant with one element, or None."""
    if value is None or value.data is None or value.data.size != 1:
        return None
    return float(value.data.reshape(()))
