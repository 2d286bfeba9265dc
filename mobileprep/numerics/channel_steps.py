"""Symmetric ranges of weights, one for each output channel."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

ChannelMethod: TypeAlias = Literal["min_max", "mse"]

SHARES: Final = tuple(share / 40 for share in range(40, 15, -1))
"""Shares of the widest range that are tried for the least squared error."""

# Channels of smaller weights count as zero, so that steps stay normal numbers.
_TINY: Final = float(np.finfo(np.float32).tiny) * 256


def channel_steps(
    weights: NDArray[Any], axes: tuple[int, ...], method: ChannelMethod, most: int
) -> NDArray[np.float32]:
    """How far apart the values are that the weights of each output channel are rounded to.

    Args:
        weights: finite float32.
        axes: the axes that make up the output channels, counted from the last: -1.
        method: ``min_max`` covers every weight; ``mse`` cuts the largest off where that makes the
            channel's squared error smaller, by the best of ``SHARES``, of equal ones the widest.
            Source: Banner et al., "Post training 4-bit quantization of convolutional networks for
            rapid-deployment", 2019, by search instead of a distribution's formula.
        most: steps on either side of zero: 127 for eight bits.

    Returns:
        Positive float32 in the weights' shape, with ones for the axes that are no channels; 1 for
        channels that hold nothing but zeros.
    """
    others = tuple(i for i in range(weights.ndim) if i - weights.ndim not in axes)
    largest = np.abs(weights).max(axis=others, keepdims=True, initial=0)
    sizes = np.where(largest > _TINY, largest / most, 1).astype(np.float32)
    if method == "min_max":
        return sizes
    best, least = np.ones_like(sizes), np.full_like(sizes, np.inf)
    for share in SHARES:
        tried = sizes * np.float32(share)
        found = np.clip(np.rint(weights / tried), -most, most) * tried
        error = np.square(found - weights).sum(axis=others, keepdims=True)
        better = error < least
        best, least = np.where(better, np.float32(share), best), np.where(better, error, least)
    return sizes * best
