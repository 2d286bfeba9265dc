"""Arithmetic on tensors of one type, as lowerings to several operators need it."""

from __future__ import annotations

from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.tensor import Array
from mobileprep.litert.program import Value
from mobileprep.litert.scope import Scope
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
    """Operators on tensors of one type. A Python number is a constant of that type.

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
        """A builtin of two operands."""
        return self._emitted(code, self.dtype, _TABLES[code], left, right)

    def compare(self, code: str, left: Value | float, right: Value | float) -> Value:
        return self._emitted(code, DType.BOOL, _COMPARISONS[code], left, right)

    def select(self, condition: Value, left: Value | float, right: Value | float) -> Value:
        values = [condition, *map(self._value, (left, right))]
        return self._emitted("SELECT_V2", self.dtype, "SelectV2Options", *values)

    def one(self, code: str, value: Value) -> Value:
        """A builtin of one operand."""
        return self.scope.emit(code, [value], value.shape, value.dtype)

    def reduce(self, code: str, value: Value, *axes: int) -> Value:
        """A reduction that keeps its axes with size 1; a negative axis counts from the end."""
        shape, rank = value.shape, value.rank or 0
        places = [axis % rank if rank else axis for axis in axes]
        if shape is not None:
            shape = tuple(1 if i in places else size for i, size in enumerate(shape))
        given = [value, self.scope.integers_constant(places, "axes")]
        return self.scope.emit(code, given, shape, value.dtype, "ReducerOptions", keep_dims=True)

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
    """A tensor of another's shape with one number everywhere."""
    if like.shape is not None and -1 not in like.shape:
        return scope.constant(np.full(like.shape, number))
    options = {"out_type": "INT32"}
    rank = (-1 if like.rank is None else like.rank,)
    sizes = scope.emit("SHAPE", [like], rank, DType.INT32, "ShapeOptions", **options)
    one = scope.constant(np.asarray(number))
    return scope.emit("FILL", [sizes, one], like.shape, one.dtype, "FillOptions")
