"""Special functions, computed in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.cost import per_output
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import (
    OutputShapes,
    ShapeArgs,
    broadcast_binary,
    merge,
    shape_fn,
    unchanged,
)

# W. J. Cody, "Rational Chebyshev Approximations for the Error Function", Math. Comp. 23 (1969):
# erf on |x| <= 0.46875, and erfc(x) exp(x^2) up to 4 and beyond. Highest power last.
_ERF_P = (
    3.20937758913846947e3,
    3.77485237685302021e2,
    1.13864154151050156e2,
    3.16112374387056560,
    1.85777706184603153e-1,
)


_ERF_Q = (
    2.84423683343917062e3,
    1.28261652607737228e3,
    2.44024637934444173e2,
    2.36012909523441209e1,
    1.0,
)


_ERFC_P = (
    1.23033935479799725e3,
    2.05107837782607147e3,
    1.71204761263407058e3,
    8.81952221241769090e2,
    2.98635138197400131e2,
    6.61191906371416295e1,
    8.88314979438837594,
    5.64188496988670089e-1,
    2.15311535474403846e-8,
)


_ERFC_Q = (
    1.23033935480374942e3,
    3.43936767414372164e3,
    4.36261909014324716e3,
    3.29079923573345963e3,
    1.62138957456669019e3,
    5.37181101862009858e2,
    1.17693950891312499e2,
    1.57449261107098347e1,
    1.0,
)


_FAR_P = (
    -6.58749161529837803e-4,
    -1.60837851487422766e-2,
    -1.25781726111229246e-1,
    -3.60344899949804439e-1,
    -3.05326634961232344e-1,
    -1.63153871373020978e-2,
)


_FAR_Q = (
    2.33520497626869185e-3,
    6.05183413124413191e-2,
    5.27905102951428412e-1,
    1.87295284992346725,
    2.56852019228982242,
    1.0,
)


# Lanczos' approximation with g = 7 and nine terms (P. Godfrey's coefficients).
_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)


_LANCZOS_G = 7.0


# Digamma's asymptotic series: B(2n) / 2n.
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    out = np.full_like(x, coefficients[-1])
    for c in coefficients[-2::-1]:
        out = out * x + c
    return out


def erfc_positive(x: Array) -> Array:
    """Compute erfc for numbers of 0.46875 and above, in double precision."""
    near = np.minimum(x, 4.0)
    middle = _polynomial(near, _ERFC_P) / _polynomial(near, _ERFC_Q)
    far = np.maximum(x, 4.0)
    inverse = 1 / (far * far)
    tail = inverse * _polynomial(inverse, _FAR_P) / _polynomial(inverse, _FAR_Q)
    beyond = (1 / np.sqrt(np.pi) + tail) / far
    # Square a truncated number exactly, since exp would amplify its rounding error.
    coarse = np.trunc(x * 16) / 16
    scale = np.exp(-coarse * coarse) * np.exp(-(x - coarse) * (x + coarse))
    return np.where(np.isinf(x), 0.0, scale * np.where(x <= 4, middle, beyond))


def erf(x: Array) -> Array:
    """Compute the error function."""
    small = np.clip(x, -0.46875, 0.46875)
    square = small * small
    inner = small * _polynomial(square, _ERF_P) / _polynomial(square, _ERF_Q)
    size = np.maximum(np.abs(x), 0.46875)
    return np.where(np.abs(x) <= 0.46875, inner, np.sign(x) * (1 - erfc_positive(size)))


def erfc(x: Array) -> Array:
    """Compute 1 - erf(x), without loss of precision for small results."""
    size = np.maximum(np.abs(x), 0.46875)
    outer = erfc_positive(size)
    return np.where(np.abs(x) <= 0.46875, 1 - erf(x), np.where(x < 0, 2 - outer, outer))


def log_gamma(x: Array) -> Array:
    """Compute the logarithm of the absolute value of the gamma function."""
    reflected = np.where(x < 0.5, 1 - x, x) - 1
    total = np.full_like(reflected, _LANCZOS[0])
    for i, c in enumerate(_LANCZOS[1:], start=1):
        total = total + c / (reflected + i)
    base = reflected + _LANCZOS_G + 0.5
    right = 0.5 * np.log(2 * np.pi) + (reflected + 0.5) * np.log(base) - base + np.log(total)
    sine = np.abs(np.sin(np.pi * (x - np.floor(x))))
    value = np.where(x < 0.5, np.log(np.pi / sine) - right, right)
    return np.where(np.isinf(x), np.inf, value)


def digamma(x: Array) -> Array:
    """Compute the derivative of ``log_gamma``."""
    positive = np.where(x <= 0, 1 - x, x)
    shift = np.zeros_like(positive)
    for _ in range(10):
        low = positive < 10
        shift = np.where(low, shift - 1 / positive, shift)
        positive = np.where(low, positive + 1, positive)
    square = 1 / (positive * positive)
    series = square * _polynomial(square, _DIGAMMA)
    value = np.log(positive) - 0.5 / positive - series + shift
    fraction = x - np.floor(x)
    value = np.where(x <= 0, value - np.pi / np.tan(np.pi * fraction), value)
    return np.where((x <= 0) & (fraction == 0), np.nan, value)


def erf_inverse(x: Array) -> Array:
    """Invert ``erf``: an initial guess (S. Winitzki, 2008), then Halley's method."""
    size = np.minimum(np.abs(x), 1.0)
    log = np.log1p(-size * size)
    half = 2 / (np.pi * 0.147) + log / 2
    guess = np.sqrt(np.maximum(np.sqrt(half * half - log / 0.147) - half, 0.0))
    for _ in range(3):
        # Near 1, erf loses all its digits, but its complement keeps them.
        error = np.where(size < 0.5, erf(guess) - size, (1 - size) - erfc(guess))
        step = error * np.sqrt(np.pi) / 2 * np.exp(guess * guess)
        guess = guess - step / (1 + guess * step)
    inverse = np.sign(x) * np.where(size == 1, np.inf, guess)
    return np.where(np.abs(x) > 1, np.nan, inverse)


_FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    "Digamma": digamma,
    "Erf": erf,
    "Erfc": erfc,
    "Erfinv": erf_inverse,
    "Lgamma": log_gamma,
    "Ndtri": lambda x: np.sqrt(2) * erf_inverse(2 * x - 1),
}


@kernel(*_FUNCTIONS, shape=unchanged, flops=per_output(1))
def special(node: Node, x: Array) -> Array:
    """Apply the function that the op names, and round to the type of x."""
    return np.asarray(_FUNCTIONS[node.op](x.astype(np.float64)), dtype=x.dtype)


shape_fn("BesselI0", "BesselI0e", "BesselI1", "BesselI1e", "CumulativeLogsumexp")(unchanged)


shape_fn("Igamma", "Igammac", "NextAfter", "Polygamma", "Zeta")(broadcast_binary)


@shape_fn("Betainc")
def betainc_shape(args: ShapeArgs) -> OutputShapes:
    """Return the common shape of the inputs that are not scalars."""
    larger = [s for s in args.shapes if s != ()]
    return [reduce(merge, larger) if larger else ()]
