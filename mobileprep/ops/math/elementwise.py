"""Ops that treat each element alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import as_array, check_allocation
from mobileprep.ops.common_costs import free, per_output
from mobileprep.ops.common_shapes import broadcast_binary, unchanged
from mobileprep.ops.cost import flop_rule
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import shape_fn

Unary = Callable[[Array], Any]


def _reciprocal(x: Array) -> Any:  # noqa: ANN401 - an array or a numpy scalar
    if x.dtype.kind in "iu":
        # Towards zero, and zero itself stays: numpy has no quotient for it.
        return np.where(x == 1, x, np.where(x == -1, x, 0)).astype(x.dtype)
    return np.divide(x.dtype.type(1), x)


def _rsqrt(x: Array) -> Any:  # noqa: ANN401
    return np.divide(x.dtype.type(1), np.sqrt(x))


def _sigmoid(x: Array) -> Any:  # noqa: ANN401
    one = x.dtype.type(1)
    return np.divide(one, np.add(np.exp(np.negative(x)), one))


def _round_half_even(x: Array) -> Array:
    return x if x.dtype.kind in "iub" else np.rint(x)


def _zeros_like(x: Array) -> Array:
    # Of texts the zero is the empty one.
    return np.full_like(x, b"") if x.dtype == object else np.zeros_like(x)


def _sign(x: Array) -> Array:
    if x.dtype.kind != "c":
        return np.sign(x)
    size = np.abs(x)
    return np.where(size == 0, x.dtype.type(0), x / np.where(size == 0, size.dtype.type(1), size))


# With what one element costs.
_UNARY: dict[str, tuple[Unary, int]] = {
    "Abs": (np.abs, 1),
    "Acos": (np.arccos, 1),
    "Acosh": (np.arccosh, 1),
    "Angle": (np.angle, 1),
    "Asin": (np.arcsin, 1),
    "Asinh": (np.arcsinh, 1),
    "Atan": (np.arctan, 1),
    "Atanh": (np.arctanh, 1),
    "Ceil": (np.ceil, 1),
    "ComplexAbs": (np.abs, 4),
    "Conj": (np.conj, 0),
    "Cos": (np.cos, 1),
    "Cosh": (np.cosh, 1),
    "Exp": (np.exp, 1),
    "Expm1": (np.expm1, 1),
    "Floor": (np.floor, 1),
    "Imag": (np.imag, 0),
    "Inv": (_reciprocal, 1),
    "Invert": (np.invert, 0),
    "IsFinite": (np.isfinite, 1),
    "IsInf": (np.isinf, 1),
    "IsNan": (np.isnan, 1),
    "Log": (np.log, 1),
    "Log1p": (np.log1p, 1),
    "LogicalNot": (np.logical_not, 0),
    "Neg": (np.negative, 1),
    "OnesLike": (np.ones_like, 0),
    "Real": (np.real, 0),
    "Reciprocal": (_reciprocal, 1),
    "Rint": (np.rint, 1),
    "Round": (_round_half_even, 1),
    "Rsqrt": (_rsqrt, 2),
    "Sigmoid": (_sigmoid, 4),
    "Sign": (_sign, 1),
    "Sin": (np.sin, 1),
    "Sinh": (np.sinh, 1),
    "Sqrt": (np.sqrt, 1),
    "Square": (np.square, 1),
    "Tan": (np.tan, 1),
    "Tanh": (np.tanh, 1),
    "ZerosLike": (_zeros_like, 0),
}


def _as_kernel(function: Unary) -> Callable[[Node, Array], Array]:
    def run(node: Node, x: Array) -> Array:
        return as_array(function(x), x)

    return run


for _op, (_function, _flops) in _UNARY.items():
    kernel(_op)(_as_kernel(_function))
    shape_fn(_op)(unchanged)
    flop_rule(_op)(per_output(_flops))


shape_fn("InvGrad", "PopulationCount", "ReciprocalGrad", "RsqrtGrad", "SqrtGrad")(unchanged)


@kernel("Complex")
def complex_of_parts(node: Node, real: Array, imaginary: Array) -> Array:
    """Complex numbers of real and imaginary parts, which are broadcast to each other."""
    shape = np.broadcast_shapes(real.shape, imaginary.shape)
    kind = np.result_type(real.dtype, np.complex64)
    check_allocation(shape, kind)
    out = np.empty(shape, kind)
    out.real, out.imag = real, imaginary
    return out


shape_fn("Complex")(broadcast_binary)


flop_rule("Complex")(free)
