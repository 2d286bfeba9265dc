"""Helpers that emit arithmetic on tensors of one type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.attrs import TensorShape
from mobileprep.graph.tensor import Array
from mobileprep.litert.program import Value
from mobileprep.litert.scope import Scope
from mobileprep.litert.shapes import cast, gather, known_shape, reshaped, sizes_of
from mobileprep.ops.shape_function import broadcast


class Arithmetic:
    """Emits operators on tensors of one type. Python numbers become constants of that type.

    Args:
        scope: where operators are emitted.
        dtype: the type.
    """

    def __init__(self, scope: Scope, dtype: DType = DType.FLOAT) -> None:
        self.scope = scope
        self.dtype = dtype

    def number(self, value: Any) -> Value:  # noqa: ANN401 - any array-like
        """Create a constant of the type."""
        return self.scope.constant(np.array(value, self.dtype.numpy))

    def add(self, lhs: Value | float, rhs: Value | float) -> Value:
        return self.two("ADD", lhs, rhs)

    def sub(self, lhs: Value | float, rhs: Value | float) -> Value:
        return self.two("SUB", lhs, rhs)

    def mul(self, lhs: Value | float, rhs: Value | float) -> Value:
        return self.two("MUL", lhs, rhs)

    def div(self, lhs: Value | float, rhs: Value | float) -> Value:
        return self.two("DIV", lhs, rhs)

    def minimum(self, lhs: Value | float, rhs: Value | float) -> Value:
        return self.two("MINIMUM", lhs, rhs)

    def maximum(self, lhs: Value | float, rhs: Value | float) -> Value:
        return self.two("MAXIMUM", lhs, rhs)

    def two(self, code: str, lhs: Value | float, rhs: Value | float) -> Value:
        """Emit a builtin with two operands."""
        return self._emitted(code, self.dtype, lhs, rhs)

    def compare(self, code: str, lhs: Value | float, rhs: Value | float) -> Value:
        """Emit a builtin with two operands and a bool output."""
        return self._emitted(code, DType.BOOL, lhs, rhs)

    def select(self, condition: Value, chosen: Value | float, otherwise: Value | float) -> Value:
        return self._emitted("SELECT_V2", self.dtype, condition, chosen, otherwise)

    def one(self, code: str, value: Value) -> Value:
        """Emit a builtin with one operand."""
        return self.scope.emit_plain(code, value, value.shape)

    def reduce(self, code: str, value: Value, *axes: int) -> Value:
        """Emit a reduction that keeps its axes with size 1; negative axes count from the end."""
        shape, rank = value.shape, value.rank or 0
        places = [axis % rank if rank else axis for axis in axes]
        if shape is not None:
            shape = tuple(1 if i in places else size for i, size in enumerate(shape))
        operands = [value, self.scope.integers_constant(places, "axes")]
        return self.scope.emit(code, operands, shape, keep_dims=True)

    def cast(self, value: Value, dtype: DType) -> Value:
        if value.dtype is dtype:
            return value
        if value.data is not None:
            return self.scope.constant(value.data.astype(dtype.numpy), value.name)
        return cast(self.scope, value, dtype)

    def _emitted(self, code: str, kind: DType, *operands: Value | float) -> Value:
        values = [self._value(operand) for operand in operands]
        shape: TensorShape = ()
        for value in values:
            shape = broadcast(shape, value.shape)
        return self.scope.emit(code, values, shape, kind)

    def _value(self, operand: Value | float) -> Value:
        return operand if isinstance(operand, Value) else self.number(operand)


def filled(scope: Scope, like: Value, number: np.generic | Array) -> Value:
    """Return a tensor with the shape of another, filled with one number."""
    if like.shape is not None and -1 not in like.shape:
        return scope.constant(np.full(like.shape, number))
    sizes, one = sizes_of(scope, like), scope.constant(np.asarray(number))
    return scope.emit("FILL", [sizes, one], like.shape, one.dtype)


_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "FLOOR_DIV": np.floor_divide,
    "FLOOR_MOD": np.mod,
    "MINIMUM": np.minimum,
    "MAXIMUM": np.maximum,
    "LESS": np.less,
    "LOGICAL_AND": np.logical_and,
    "LOGICAL_OR": np.logical_or,
    "SELECT_V2": np.where,
}


class IndexArithmetic(Arithmetic):
    """Emits operators on int32 and bool tensors; those on constants are folded.

    Args:
        scope: where operators are emitted.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, DType.INT32)

    def number(self, value: Any) -> Value:  # noqa: ANN401 - as in the superclass
        return self.scope.integers_constant(value)

    def floor_div(self, lhs: Value | int, rhs: Value | int) -> Value:
        return self.two("FLOOR_DIV", lhs, rhs)

    def floor_mod(self, lhs: Value | int, rhs: Value | int) -> Value:
        return self.two("FLOOR_MOD", lhs, rhs)

    def less(self, lhs: Value | int, rhs: Value | int) -> Value:
        return self.compare("LESS", lhs, rhs)

    def both(self, lhs: Value, rhs: Value) -> Value:
        return self.compare("LOGICAL_AND", lhs, rhs)

    def either(self, lhs: Value, rhs: Value) -> Value:
        return self.compare("LOGICAL_OR", lhs, rhs)

    def range(self, count: Value | int) -> Value:
        """Return the integers from 0 to ``count``, a scalar, exclusive."""
        limit = self._value(count)
        if limit.data is not None:
            return self.number(np.arange(int(limit.data), dtype=np.int32))
        return self.scope.emit("RANGE", [self.number(0), limit, self.number(1)], (-1,))

    def element(self, vector: Value, index: int) -> Value:
        """Return an element of a vector as a scalar."""
        if vector.data is not None:
            return self.number(vector.data[index])
        return gather(self.scope, vector, self.number(index))

    def sizes(self, value: Value) -> list[Value]:
        """Return the size of each dimension of a tensor of known rank, as scalars."""
        shape = known_shape(value)
        if -1 not in shape:
            return [self.number(size) for size in shape]
        sizes = sizes_of(self.scope, value)
        return [
            self.element(sizes, i) if size < 0 else self.number(size)
            for i, size in enumerate(shape)
        ]

    def joined(self, scalars: Sequence[Value | int]) -> Value:
        """Pack scalars into a vector."""
        values = [self._value(scalar) for scalar in scalars]
        constants = [value.data for value in values if value.data is not None]
        count = len(values)
        if len(constants) == count:
            return self.number(np.array([int(number) for number in constants], np.int32))
        return self.scope.emit("PACK", values, (count,), values_count=count, axis=0)

    def shaped(self, value: Value, sizes: Sequence[Value]) -> Value:
        """Reshape a tensor of any type to sizes given as scalars."""
        shape = tuple(-1 if size.data is None else int(size.data) for size in sizes)
        if -1 not in shape:
            return self.reshaped(value, shape)
        return self.scope.emit("RESHAPE", [value, self.joined(sizes)], shape)

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """Reshape a value, unless it has that shape already."""
        return value if value.shape == tuple(shape) else reshaped(self.scope, value, shape)

    def _emitted(self, code: str, kind: DType, *operands: Value | float) -> Value:
        values = [self._value(operand) for operand in operands]
        arrays = [value.data for value in values]
        if all(array is not None for array in arrays):
            return self.scope.constant(_FUNCTIONS[code](*arrays))
        return super()._emitted(code, kind, *values)
