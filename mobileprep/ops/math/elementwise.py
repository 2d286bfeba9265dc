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


def _sign(x: Array) -> Array:
    if x.dtype.kind != "c":
        return np.sign(x)
    size = np.abs(x)
    return np.where(size == 0, x.dtype.type(0), x / np.where(size == 0, size.dtype.type(1), size))


_UNARY: dict[str, Unary] = {
    "Abs": np.abs,
    "Acos": np.arccos,
    "Acosh": np.arccosh,
    "Asin": np.arcsin,
    "Asinh": np.arcsinh,
    "Atan": np.arctan,
    "Atanh": np.arctanh,
    "Ceil": np.ceil,
    "Conj": np.conj,
    "Cos": np.cos,
    "Cosh": np.cosh,
    "Exp": np.exp,
    "Expm1": np.expm1,
    "Floor": np.floor,
    "Inv": _reciprocal,
    "Invert": np.invert,
    "IsFinite": np.isfinite,
    "IsInf": np.isinf,
    "IsNan": np.isnan,
    "Log": np.log,
    "Log1p": np.log1p,
    "LogicalNot": np.logical_not,
    "Neg": np.negative,
    "OnesLike": np.ones_like,
    "Reciprocal": _reciprocal,
    "Rint": np.rint,
    "Round": _round_half_even,
    "Rsqrt": _rsqrt,
    "Sigmoid": _sigmoid,
    "Sign": _sign,
    "Sin": np.sin,
    "Sinh": np.sinh,
    "Sqrt": np.sqrt,
    "Square": np.square,
    "Tan": np.tan,
    "Tanh": np.tanh,
    "ZerosLike": np.zeros_like,
}


def _as_kernel(function: Unary) -> Callable[[Node, Array], Array]:
    def run(node: Node, x: Array) -> Array:
        return as_array(function(x), x)

    return run


for _op, _function in _UNARY.items():
    kernel(_op)(_as_kernel(_function))


shape_fn(*_UNARY)(unchanged)


flop_rule("Rsqrt")(per_output(2))


flop_rule(
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Cos",
    "Cosh",
    "Exp",
    "Expm1",
    "Floor",
    "Inv",
    "IsFinite",
    "IsInf",
    "IsNan",
    "Log",
    "Log1p",
    "Neg",
    "Reciprocal",
    "Rint",
    "Round",
    "Sign",
    "Sin",
    "Sinh",
    "Sqrt",
    "Square",
    "Tan",
    "Tanh",
)(per_output(1))


flop_rule("Sigmoid")(per_output(4))


flop_rule("Conj", "Invert", "LogicalNot", "OnesLike", "ZerosLike")(free)


_PARTS: dict[str, Unary] = {
    "Angle": np.angle,
    "ComplexAbs": np.abs,
    "Imag": np.imag,
    "Real": np.real,
}


@kernel("ComplexAbs", "Real", "Imag", "Angle")
def complex_part(node: Node, x: Array) -> Array:
    """The modulus, a part or the argument of complex numbers, in single or double precision."""
    return np.asarray(_PARTS[node.op](x))


shape_fn("Angle", "ComplexAbs", "Imag", "Real")(unchanged)


flop_rule("Angle")(per_output(1))


flop_rule("ComplexAbs")(per_output(4))


flop_rule("Imag", "Real")(free)


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
