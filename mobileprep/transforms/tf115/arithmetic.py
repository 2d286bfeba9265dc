"""Arithmetic as the original tool's library does it where it is not correctly rounded.

The 1.15 library takes roots of eight floats at a time: the processor's approximation of the
reciprocal with 12 bits, then one step of Newton's iteration (Eigen 3.3's packet ``prsqrt`` and
``psqrt``); exponentials and logarithms too are approximated. The last bits of a folded batch norm,
and by them hashes and the order of nodes, follow from it. The approximation is the processor
maker's choice; the table is that of AMD's Zen 3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.graph.node import Node
from mobileprep.graph.tensor import Array
from mobileprep.ops.kernel import Kernel, find_kernel

Floats = NDArray[np.float32]

_ONE: Final = np.float32(1)
_ELEMENTARY_FUNCTIONS_HALF: Final = np.float32(0.5)
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
    twos = np.floor(bounded * _LOG2E + _ELEMENTARY_FUNCTIONS_HALF)
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
    out: Floats = rest - square * _ELEMENTARY_FUNCTIONS_HALF + series + exponent * _LOG2_HIGH
    out = np.where(x < _TINY, np.where(x > -_TINY, np.float32(-np.inf), np.float32(np.nan)), out)
    return np.where(np.isfinite(x) | (x < 0), out, x)


def _polynomial(coefficients: tuple[np.float32, ...], x: Floats) -> Floats:
    """The polynomial's value, highest power first."""
    return reduce(
        lambda value, c: value * x + c, coefficients[1:], np.full_like(x, coefficients[0])
    )


_TABLE = Path(__file__).parent / "data" / "rsqrt-x86.bin"
_PACKET = 8
_SMALLEST_NORMAL = np.finfo(np.float32).tiny
_HALF = np.uint32(0x3F000000)


def tf115_kernel(op: str) -> Kernel | None:
    """The kernel of an op as the original computes it, or None where it is the usual one."""
    return _KERNELS.get(op)


def _root(node: Node, x: Array) -> Array:
    """Root or reciprocal root: whole packets approximated, the rest correctly rounded."""
    usual = find_kernel(node.op)
    assert usual is not None
    out: Array = np.array(usual(node, x))
    if x.dtype != np.float32:
        return out
    whole = x.size // _PACKET * _PACKET
    values = np.ascontiguousarray(x).reshape(-1)[:whole]
    normal = np.isfinite(values) & (values >= _SMALLEST_NORMAL)
    flat = out.reshape(-1)
    found = approximate_rsqrt(values[normal])
    flat[:whole][normal] = found * values[normal] if node.op == "Sqrt" else found
    return flat.reshape(x.shape)


def _by_packets(approximated: Callable[[Any], Array], rounded: Callable[[Any], Array]) -> Kernel:
    """The kernel of a function that is approximated in whole packets and rounded in the rest."""

    def run(node: Node, x: Array) -> Array:
        if x.dtype != np.float32:
            return np.asarray(rounded(x))
        whole = x.size // _PACKET * _PACKET
        values = np.ascontiguousarray(x).reshape(-1)
        out = np.empty_like(values)
        out[:whole] = approximated(values[:whole])
        out[whole:] = rounded(values[whole:].astype(np.float64))
        return out.reshape(x.shape)

    return run


def _range(node: Node, start: Array, limit: Array, delta: Array) -> Array:
    """Numbers of which each is the one before plus the step, with its rounding."""
    usual = find_kernel(node.op)
    assert usual is not None
    steps = np.array(usual(node, start, limit, delta))
    if steps.dtype.kind != "f" or not steps.size:
        return steps
    steps[:1], steps[1:] = start, delta
    return np.add.accumulate(steps, dtype=steps.dtype)


_KERNELS: dict[str, Kernel] = {
    "Exp": _by_packets(tf115_exp, np.exp),
    "Log": _by_packets(tf115_log, np.log),
    "Range": _range,
    "Rsqrt": _root,
    "Sqrt": _root,
}


def approximate_rsqrt(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """1/sqrt(x) of positive normal floats, 1-D, to about 22 bits."""
    guess = _instruction(x)
    half = x * np.float32(-0.5)
    step: NDArray[Any] = guess * (half * (guess * guess) + np.float32(1.5))
    return step


def _instruction(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the instruction ``rsqrtps`` answers: 12 bits, by the mantissa's upper 12 bits."""
    bits = x.view(np.uint32)
    exponent = (bits >> 23).astype(np.int32)
    # The table has two halves: for x in [1, 2) and, as the root halves exponents, in [2, 4).
    even = (exponent & 1) == 0
    index = (bits >> 11 & 0xFFF) + even * np.uint32(4096)
    halvings = (exponent - 127 - even) // 2
    table = _table()[index].astype(np.uint32)
    answer: NDArray[Any] = (_HALF + (table << 11)).astype(np.int64) - (
        halvings.astype(np.int64) << 23
    )
    return answer.astype(np.uint32).view(np.float32)


@lru_cache(maxsize=1)
def _table() -> NDArray[np.uint16]:
    return np.fromfile(_TABLE, dtype="<u2")
