"""Sliding windows over spatial axes, computed position by position."""

from __future__ import annotations

import itertools

import numpy as np

from mobileprep.ops.numerics.windows import Window


def windows(x: np.ndarray, window: Window, value: float = 0) -> np.ndarray:
    """[batch, *positions, *window, channels] of an input padded with ``value``."""
    pads = [(0, 0), *window.pads, (0, 0)]
    padded = np.pad(x, pads, constant_values=value)
    positions = window.positions(x.shape[1:-1])
    out = np.empty((len(x), *positions, *window.size, x.shape[-1]), x.dtype)
    for position in itertools.product(*map(range, positions)):
        for tap in itertools.product(*map(range, window.size)):
            index = tuple(
                p * s + t * d
                for p, s, t, d in zip(position, window.strides, tap, window.dilations, strict=True)
            )
            out[(slice(None), *position, *tap)] = padded[(slice(None), *index)]
    return out


def convolution(x: np.ndarray, filters: np.ndarray, window: Window) -> np.ndarray:
    """A convolution in double precision."""
    patches = windows(x.astype(np.float64), window)
    count = filters.ndim - 1
    return np.tensordot(patches, filters.astype(np.float64), axes=(range(-count, 0), range(count)))


def depthwise(x: np.ndarray, filters: np.ndarray, window: Window) -> np.ndarray:
    """A depthwise convolution in double precision."""
    patches = windows(x.astype(np.float64), window)
    out = np.einsum("nhwijc,ijcm->nhwcm", patches, filters.astype(np.float64))
    return out.reshape(*out.shape[:3], -1)
