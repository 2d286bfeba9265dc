"""Exponentials and logarithms of floats as the original tool's library takes them.

Eigen 3.3 computes both of packets of floats by the polynomials of the Cephes library, each product
and sum rounded by itself. Arrays here are 1-D and float32, as are the results.

Source: ``pexp`` and ``plog`` of Eigen 3.3; S. Moshier, Cephes, ``expf`` and ``logf``.
"""

from __future__ import annotations

from functools import reduce
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_ONE: Final = np.float32(1)
_HALF: Final = np.float32(0.5)
_TINY: Final = np.finfo(np.float32).tiny
# The logarithm of two as a sum, whose first part has few digits: whole multiples of it are exact.
_LOG2_HIGH: Final = np.float32(0.693359375)
_LOG2_LOW: Final = np.float32(-2.12194440e-4)
_LOG2E: Final = np.float32(1.44269504088896341)
_LARGEST_EXPONENT: Final = np.float32(88.3762626647949)
_SQRT_HALF: Final = np.float32(0.707106781186547524)
_EXP: Final = tuple(
    map(
        np.float32,
        (
            *(1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3),
            *(4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1),
        ),
    )
)
# In three groups, as they are summed.
_LOG: Final = tuple(
    tuple(map(np.float32, group))
    for group in (
        (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1),
        (-1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1),
        (2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
    )
)


def tf115_exp(x: Floats) -> Floats:
    """e to the power of each element."""
    bounded = np.clip(x, -_LARGEST_EXPONENT, _LARGEST_EXPONENT)
    twos = np.floor(bounded * _LOG2E + _HALF)
    rest = bounded - twos * _LOG2_HIGH - twos * _LOG2_LOW
    series = _polynomial(_EXP, rest) * (rest * rest) + rest + _ONE
    # NaN has no whole part, and the maximum brings it back.
    powers = np.nan_to_num(twos).astype(np.int32) + 127
    scaled: Floats = np.maximum(series * (powers << 23).view(np.float32), x)
    return scaled


def tf115_log(x: Floats) -> Floats:
    """The natural logarithm of each element; denormal numbers count as zeros."""
    bits = np.maximum(x, _TINY).view(np.uint32)
    exponent = (bits >> 23).astype(np.float32) - np.float32(126)
    mantissa = (bits & 0x807FFFFF | 0x3F000000).view(np.float32)
    small = mantissa < _SQRT_HALF
    rest = mantissa - _ONE + np.where(small, mantissa, np.float32(0))
    exponent = exponent - small.astype(np.float32)
    square = rest * rest
    cube = square * rest
    first, second, third = (_polynomial(group, rest) for group in _LOG)
    series = ((first * cube + second) * cube + third) * cube + exponent * _LOG2_LOW
    out: Floats = rest - square * _HALF + series + exponent * _LOG2_HIGH
    out = np.where(x < _TINY, np.where(x > -_TINY, np.float32(-np.inf), np.float32(np.nan)), out)
    return np.where(np.isfinite(x) | (x < 0), out, x)


def _polynomial(coefficients: tuple[np.float32, ...], x: Floats) -> Floats:
    """The polynomial's value, highest power first."""
    return reduce(
        lambda value, c: value * x + c, coefficients[1:], np.full_like(x, coefficients[0])
    )
