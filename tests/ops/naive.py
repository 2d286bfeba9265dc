"""Windows that slide over spatial axes, written out position by position: slow and plain."""

from __future__ import annotations

import itertools

import numpy as np

from mobileprep.ops.numerics.windows import Window


def windows(x: np.ndarray, window: Window, value: float = 0) -> np.ndarray:
    """[batch, *positions, *window, channels] of an input, padded with a value."""
    pads = [(0, 0), *window.pads, (0, 0)]
    padded = np.pad(x, pads, constant_values=value)
    positions = window.positions(x.shape[1:-1])
    out = np.empty((len(x), *positions, *window.size, x.shape[-1]), x.dtype)
    for place in itertools.product(*map(range, positions)):
        for tap in itertools.product(*map(range, window.size)):
            at = tuple(
                p * s + t * d
                for p, s, t, d in zip(place, window.strides, tap, window.dilations, strict=True)
            )
            out[(slice(None), *place, *tap)] = padded[(slice(None), *at)]
    return out


def convolution(x: np.ndarray, filters: np.ndarray, window: Window) -> np.ndarray:
    """A convolution in double precision."""
    found = windows(x.astype(np.float64), window)
    count = filters.ndim - 1
    return np.tensordot(found, filters.astype(np.float64), axes=(range(-count, 0), range(count)))


def depthwise(x: np.ndarray, filters: np.ndarray, window: Window) -> np.ndarray:
    """A depthwise convolution in double precision."""
    found = windows(x.astype(np.float64), window)
    out = np.einsum("nhwijc,ijcm->nhwcm", found, filters.astype(np.float64))
    return out.reshape(*out.shape[:3], -1)
