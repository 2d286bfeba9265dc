"""Arithmetic with one number for each channel, several positions at a time."""

from __future__ import annotations

import numpy as np

from mobileprep.ir.tensor import Array

# Long enough for a vector loop to outweigh its start.
_LINE = 8192


def channel_line(vector: Array) -> Array:
    """One number for each channel, repeated to fill a line of some positions."""
    return np.tile(vector, max(_LINE // len(vector), 1))


def by_channel(function: np.ufunc, x: Array, line: Array, out: Array) -> None:
    """Combine each channel of x with its number.

    Args:
        function: of two operands, x and the line.
        x: flat, channels last; it begins with the first channel.
        line: by ``channel_line``.
        out: flat, as long as x; may be x.
    """
    whole = x.size // line.size * line.size
    function(x[:whole].reshape(-1, line.size), line, out=out[:whole].reshape(-1, line.size))
    if whole < x.size:
        function(x[whole:], line[: x.size - whole], out=out[whole:])
