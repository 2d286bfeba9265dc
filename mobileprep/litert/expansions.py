"""Functions that no builtin computes, and patterns had no use for, as arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options
from mobileprep.litert.program import Op, Program, Value

# Source: the rational approximation of float32's erf in Eigen 3.3, on [-4, 4]: x * p(x * x) over
# q(x * x), within 4e-7 of erf.
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
    """The program with each ERF as products, sums and a quotient."""
    ops: list[Op] = []
    for op in program.ops:
        ops += _Erf(op).ops() if op.code == "ERF" else [op]
    return program.with_ops(ops)


class _Erf:
    """One error function in the making."""

    def __init__(self, op: Op) -> None:
        self._op = op
        self._ops: list[Op] = []

    def ops(self) -> list[Op]:
        (x,) = self._op.inputs
        assert x is not None
        x = self._two("MINIMUM", "MaximumMinimumOptions", x, self._number(_EDGE))
        x = self._two("MAXIMUM", "MaximumMinimumOptions", x, self._number(-_EDGE))
        square = self._two("MUL", "MulOptions", x, x)
        above = self._two("MUL", "MulOptions", x, self._polynomial(square, _ABOVE))
        below = self._polynomial(square, _BELOW)
        quotient = Op("DIV", (above, below), self._op.outputs, Options("DivOptions"))
        return [*self._ops, quotient]

    def _polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """By Horner's rule, the coefficient of the highest power first."""
        total = self._number(coefficients[0])
        for coefficient in coefficients[1:]:
            total = self._two("MUL", "MulOptions", total, x)
            total = self._two("ADD", "AddOptions", total, self._number(coefficient))
        return total

    def _number(self, number: float) -> Value:
        data = np.array(number, np.float32)
        return Value(f"{self._op.outputs[0].name}_number", DType.FLOAT, (), data)

    def _two(self, code: str, table: str, left: Value, right: Value) -> Value:
        output = self._op.outputs[0]
        made = Value(f"{output.name}_{len(self._ops)}", DType.FLOAT, output.shape)
        self._ops.append(Op(code, (left, right), (made,), Options(table)))
        return made
