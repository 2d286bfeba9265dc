"""What lowering makes of a graph: operators in order, and the values that they pass on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options, Quantization
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array


class Value(Struct, frozen=True, eq=False):
    """A tensor; two are the same only where they are one object.

    Args:
        name: what it is called in the file.
        dtype: its element type.
        shape: its sizes, -1 where unknown; None where even the rank is unknown.
        data: the elements of a constant.
        quantization: how integers stand for real numbers, where they do.
        alike: a tensor of the graph with the same elements in another order, where there is one.
    """

    name: str
    dtype: DType
    shape: TensorShape
    data: Array | None = None
    quantization: Quantization | None = None
    alike: str = ""

    @property
    def rank(self) -> int | None:
        """The number of dimensions, None where it is unknown."""
        return None if self.shape is None else len(self.shape)


class Op(Struct, frozen=True, eq=False):
    """One operator of LiteRT.

    Args:
        code: the builtin's name, or ``CUSTOM``.
        inputs: values, None for an optional one that is not there.
        outputs: values that no other operator puts out.
        options: the builtin's options.
        custom: the name of a custom operator.
        custom_options: the bytes that it reads.
        node: the node of the graph that it comes from.
        subgraphs: what it runs, in the order of the options that have their numbers.
    """

    code: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    options: Options | None = None
    custom: str = ""
    custom_options: bytes = b""
    node: Node | None = None
    subgraphs: tuple[Program, ...] = ()


class Port(Struct, frozen=True):
    """An input or output of the whole: the name that callers use, and the value."""

    name: str
    value: Value


class Program(Struct, frozen=True):
    """A subgraph before its values have numbers.

    Args:
        inputs: what callers feed, in order.
        outputs: what callers fetch, in order.
        ops: in an order in which they can run.
        name: the subgraph's.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    ops: tuple[Op, ...]
    name: str = "main"

    def with_ops(self, ops: Sequence[Op]) -> Program:
        """The same with other operators, which make the same outputs."""
        return Program(self.inputs, self.outputs, tuple(ops), self.name)

    def mapped(self, change: Callable[[Program], Program]) -> Program:
        """The program after a change that is made to all that its operators run, too."""
        ops = [
            replace(op, subgraphs=tuple(p.mapped(change) for p in op.subgraphs))
            if op.subgraphs
            else op
            for op in self.ops
        ]
        return change(self.with_ops(ops))


@dataclass
class Readers:
    """How often each value of a program is read, a fetch counted as a reading."""

    program: Program
    counts: dict[Value, int] = field(default_factory=dict)
    makers: dict[Value, Op] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op in self.program.ops:
            for value in op.inputs:
                if value is not None:
                    self.counts[value] = self.counts.get(value, 0) + 1
            self.makers.update(dict.fromkeys(op.outputs, op))
        for port in self.program.outputs:
            self.counts[port.value] = self.counts.get(port.value, 0) + 1

    def once(self, value: Value) -> bool:
        """Whether a value is read by one operator and by nobody else."""
        return self.counts.get(value) == 1

    def maker(self, value: Value | None) -> Op | None:
        """The operator that puts a value out; None for constants and inputs."""
        return None if value is None else self.makers.get(value)


def number_of(value: Value | None) -> float | None:
    """The number of a constant that has one."""
    if value is None or value.data is None or value.data.size != 1:
        return None
    return float(value.data.reshape(()))
