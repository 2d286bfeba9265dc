"""Helpers that emit arithmetic on tensors of one type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.tensor import Array
from mobileprep.litert.program import Value
from mobileprep.litert.refusals import GIVE_SHAPES, CannotExpressError
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import reshaped
from mobileprep.litert.types import NAMES
from mobileprep.ops.shape_function import broadcast

_TABLES: Final = {
    "ADD": "AddOptions",
    "DIV": "DivOptions",
    "FLOOR_MOD": "FloorModOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "MUL": "MulOptions",
    "POW": "PowOptions",
    "SUB": "SubOptions",
}
_COMPARISONS: Final = {
    "EQUAL": "EqualOptions",
    "GREATER": "GreaterOptions",
    "LESS": "LessOptions",
}


class Arithmetic:
    """Emits operators on tensors of one type. Python numbers become constants of that type.

    Args:
        scope: where operators are emitted.
        dtype: the type.
    """

    def __init__(self, scope: Scope, dtype: DType = DType.FLOAT) -> None:
        self.scope = scope
        self.dtype = dtype

    def add(self, left: Value | float, right: Value | float) -> Value:
        return self.two("ADD", left, right)

    def sub(self, left: Value | float, right: Value | float) -> Value:
        return self.two("SUB", left, right)

    def mul(self, left: Value | float, right: Value | float) -> Value:
        return self.two("MUL", left, right)

    def div(self, left: Value | float, right: Value | float) -> Value:
        return self.two("DIV", left, right)

    def minimum(self, left: Value | float, right: Value | float) -> Value:
        return self.two("MINIMUM", left, right)

    def maximum(self, left: Value | float, right: Value | float) -> Value:
        return self.two("MAXIMUM", left, right)

    def two(self, code: str, left: Value | float, right: Value | float) -> Value:
        """Emit a builtin with two operands."""
        return self._emitted(code, self.dtype, _TABLES[code], left, right)

    def compare(self, code: str, left: Value | float, right: Value | float) -> Value:
        return self._emitted(code, DType.BOOL, _COMPARISONS[code], left, right)

    def select(self, condition: Value, left: Value | float, right: Value | float) -> Value:
        values = [condition, *map(self._value, (left, right))]
        return self._emitted("SELECT_V2", self.dtype, "SelectV2Options", *values)

    def one(self, code: str, value: Value) -> Value:
        """Emit a builtin with one operand."""
        return self.scope.emit(code, [value], value.shape, value.dtype)

    def reduce(self, code: str, value: Value, *axes: int) -> Value:
        """Emit a reduction that keeps its axes with size 1; negative axes count from the end."""
        shape, rank = value.shape, value.rank or 0
        places = [axis % rank if rank else axis for axis in axes]
        if shape is not None:
            shape = tuple(1 if i in places else size for i, size in enumerate(shape))
        operands = [value, self.scope.integers_constant(places, "axes")]
        return self.scope.emit(code, operands, shape, value.dtype, "ReducerOptions", keep_dims=True)

    def cast(self, value: Value, dtype: DType) -> Value:
        if value.dtype is dtype:
            return value
        if value.data is not None:
            return self.scope.constant(value.data.astype(dtype.numpy), value.name)
        kinds = {"in_data_type": NAMES[value.dtype], "out_data_type": NAMES[dtype]}
        return self.scope.emit("CAST", [value], value.shape, dtype, "CastOptions", **kinds)

    def _emitted(self, code: str, kind: DType, table: str, *operands: Value | float) -> Value:
        values = [self._value(operand) for operand in operands]
        shape: TensorShape = ()
        for value in values:
            shape = broadcast(shape, value.shape)
        return self.scope.emit(code, values, shape, kind, table)

    def _value(self, operand: Value | float) -> Value:
        if isinstance(operand, Value):
            return operand
        return self.scope.constant(np.array(operand, self.dtype.numpy))


def filled(scope: Scope, like: Value, number: np.generic | Array) -> Value:
    """Return a tensor with the shape of another, filled with one number."""
    if like.shape is not None and -1 not in like.shape:
        return scope.constant(np.full(like.shape, number))
    options = {"out_type": "INT32"}
    rank = (-1 if like.rank is None else like.rank,)
    sizes = scope.emit("SHAPE", [like], rank, DType.INT32, "ShapeOptions", **options)
    one = scope.constant(np.asarray(number))
    return scope.emit("FILL", [sizes, one], like.shape, one.dtype, "FillOptions")


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
    """Emits operators on int32 and bool tensors. Python integers become constants.

    Args:
        scope: where operators are emitted.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def number(self, value: Any) -> Value:  # noqa: ANN401 - any array-like
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
        """Return the integers from 0 to ``count``, a scalar, exclusive."""
        limit = self._value(count)
        if limit.data is not None:
            return self.number(np.arange(int(limit.data), dtype=np.int32))
        operands = [self.number(0), limit, self.number(1)]
        return self.scope.emit("RANGE", operands, (-1,), DType.INT32, "RangeOptions")

    def element(self, vector: Value, index: int) -> Value:
        """Return an element of a vector as a scalar."""
        if vector.data is not None:
            return self.number(vector.data[index])
        options = {"axis": 0, "batch_dims": 0}
        operands = [vector, self.number(index)]
        return self.scope.emit("GATHER", operands, (), DType.INT32, "GatherOptions", **options)

    def sizes(self, value: Value) -> list[Value]:
        """Return the size of each dimension of a tensor of known rank, as scalars."""
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
        """Pack scalars into a vector."""
        values = [self._value(scalar) for scalar in scalars]
        constants = [value.data for value in values if value.data is not None]
        if len(constants) == len(values):
            return self.number(np.array([int(number) for number in constants], np.int32))
        options = {"values_count": len(values), "axis": 0}
        shape = (len(values),)
        return self.scope.emit("PACK", values, shape, DType.INT32, "PackOptions", **options)

    def shaped(self, value: Value, sizes: Sequence[Value]) -> Value:
        """Reshape a tensor of any type to sizes given as scalars."""
        shape = tuple(-1 if size.data is None else int(size.data) for size in sizes)
        if -1 not in shape:
            return self.reshaped(value, shape)
        operands = [value, self.joined(sizes)]
        return self.scope.emit("RESHAPE", operands, shape, value.dtype, "ReshapeOptions")

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """Reshape a value, unless it has that shape already."""
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
