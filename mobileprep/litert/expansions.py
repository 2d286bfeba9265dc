"""Functions that no builtin computes, and patterns had no use for, as arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.formats.tflite.records import Options
from mobileprep.litert.program import Op, Program, Value
from mobileprep.litert.scope import ACTIVATION

# Source: the rational approximation of float32's erf in Eigen 3.3, on [-4, 4]: x * p(x * x) over
# q(x * x), within 4e-7 of erf. Here x is 4 * t, and powers of 16 scale the coefficients exactly.
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
        # LiteRT divides in float alone: in integers, the bound would be rounded to the scale of x.
        scaled = Value(f"{self._op.outputs[0].name}_scaled", DType.FLOAT, self._op.outputs[0].shape)
        clip = Options("DivOptions", {ACTIVATION: "RELU_N1_TO_1"})
        self._ops.append(Op("DIV", (x, self._number(_EDGE)), (scaled,), clip))
        square = self._two("MUL", "MulOptions", scaled, scaled)
        above = self._two("MUL", "MulOptions", scaled, self._polynomial(square, _ABOVE, _EDGE))
        below = self._polynomial(square, _BELOW, 1.0)
        quotient = Op("DIV", (above, below), self._op.outputs, Options("DivOptions"))
        return [*self._ops, quotient]

    def _polynomial(self, x: Value, coefficients: Sequence[float], factor: float) -> Value:
        """By Horner's rule, the coefficient of the highest power first, all times a factor."""
        powers = range(len(coefficients) - 1, -1, -1)
        first, *rest = (
            c * factor * _EDGE ** (2 * power) for c, power in zip(coefficients, powers, strict=True)
        )
        total = self._number(first)
        for coefficient in rest:
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
