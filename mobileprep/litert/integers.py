"""Arithmetic on sizes and indices, done at once where the operands are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import reshaped
from mobileprep.ops.shape_function import broadcast

_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Any], str]]] = {
    "ADD": (np.add, "AddOptions"),
    "SUB": (np.subtract, "SubOptions"),
    "MUL": (np.multiply, "MulOptions"),
    "FLOOR_DIV": (np.floor_divide, "FloorDivOptions"),
    "FLOOR_MOD": (np.mod, "FloorModOptions"),
    "MINIMUM": (np.minimum, "MaximumMinimumOptions"),
    "MAXIMUM": (np.maximum, "MaximumMinimumOptions"),
    "LESS": (np.less, "LessOptions"),
    "LOGICAL_AND": (np.logical_and, "LogicalAndOptions"),
    "LOGICAL_OR": (np.logical_or, "LogicalOrOptions"),
    "SELECT_V2": (np.where, "SelectV2Options"),
}


class IndexArithmetic:
    """Operators on int32 and bool tensors. A Python integer is a constant.

    Args:
        scope: where operators are emitted.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def number(self, value: Any) -> Value:  # noqa: ANN401 - as numpy takes them
        """A constant."""
        return self.scope.integers_constant(value)

    def add(self, left: Value | int, right: Value | int) -> Value:
        return self._apply("ADD", DType.INT32, left, right)

    def sub(self, left: Value | int, right: Value | int) -> Value:
        return self._apply("SUB", DType.INT32, left, right)

    def mul(self, left: Value | int, right: Value | int) -> Value:
        return self._apply("MUL", DType.INT32, left, right)

    def floor_div(self, left: Value | int, right: Value | int) -> Value:
        return self._apply("FLOOR_DIV", DType.INT32, left, right)

    def floor_mod(self, left: Value | int, right: Value | int) -> Value:
        return self._apply("FLOOR_MOD", DType.INT32, left, right)

    def minimum(self, left: Value | int, right: Value | int) -> Value:
        return self._apply("MINIMUM", DType.INT32, left, right)

    def maximum(self, left: Value | int, right: Value | int) -> Value:
        return self._apply("MAXIMUM", DType.INT32, left, right)

    def less(self, left: Value | int, right: Value | int) -> Value:
        return self._apply("LESS", DType.BOOL, left, right)

    def both(self, left: Value, right: Value) -> Value:
        return self._apply("LOGICAL_AND", DType.BOOL, left, right)

    def either(self, left: Value, right: Value) -> Value:
        return self._apply("LOGICAL_OR", DType.BOOL, left, right)

    def select(self, condition: Value, left: Value, right: Value) -> Value:
        return self._apply("SELECT_V2", DType.INT32, condition, left, right)

    def range(self, count: Value | int) -> Value:
        """The integers from 0 on; ``count`` is a scalar."""
        limit = self._value(count)
        if limit.data is not None:
            return self.number(np.arange(int(limit.data), dtype=np.int32))
        given = [self.number(0), limit, self.number(1)]
        return self.scope.emit("RANGE", given, (-1,), DType.INT32, "RangeOptions")

    def element(self, vector: Value, index: int) -> Value:
        """An element of a vector as a scalar."""
        if vector.data is not None:
            return self.number(vector.data[index])
        options = {"axis": 0, "batch_dims": 0}
        given = [vector, self.number(index)]
        return self.scope.emit("GATHER", given, (), DType.INT32, "GatherOptions", **options)

    def sizes(self, value: Value) -> list[Value]:
        """The size of each dimension of a tensor of known rank, as scalars.

        Raises:
            CannotExpressError: the rank is not known.
        """
        if value.shape is None:
            message = "the rank of its input is not known"
            raise CannotExpressError(message, GIVE_SHAPES)
        if -1 not in value.shape:
            return [self.number(size) for size in value.shape]
        rank, options = (len(value.shape),), {"out_type": "INT32"}
        sizes = self.scope.emit("SHAPE", [value], rank, DType.INT32, "ShapeOptions", **options)
        return [
            self.element(sizes, i) if size < 0 else self.number(size)
            for i, size in enumerate(value.shape)
        ]

    def joined(self, scalars: Sequence[Value | int]) -> Value:
        """A vector of scalars."""
        values = [self._value(scalar) for scalar in scalars]
        known = [value.data for value in values if value.data is not None]
        if len(known) == len(values):
            return self.number(np.array([int(number) for number in known], np.int32))
        options = {"values_count": len(values), "axis": 0}
        shape = (len(values),)
        return self.scope.emit("PACK", values, shape, DType.INT32, "PackOptions", **options)

    def shaped(self, value: Value, sizes: Sequence[Value]) -> Value:
        """A tensor of any type under a shape of scalars."""
        shape = tuple(-1 if size.data is None else int(size.data) for size in sizes)
        if -1 not in shape:
            return self.reshaped(value, shape)
        given = [value, self.joined(sizes)]
        return self.scope.emit("RESHAPE", given, shape, value.dtype, "ReshapeOptions")

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """A value under another shape; as it is where it has that one."""
        return value if value.shape == tuple(shape) else reshaped(self.scope, value, shape)

    def _apply(self, code: str, kind: DType, *operands: Value | int) -> Value:
        function, table = _FUNCTIONS[code]
        values = [self._value(operand) for operand in operands]
        arrays = [value.data for value in values]
        if all(array is not None for array in arrays):
            return self.scope.constant(function(*arrays))
        shape: TensorShape = ()
        for value in values:
            shape = broadcast(shape, value.shape)
        return self.scope.emit(code, values, shape, kind, table)

    def _value(self, operand: Value | int) -> Value:
        return operand if isinstance(operand, Value) else self.number(operand)
