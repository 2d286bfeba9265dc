"""Symmetric ranges of weights, one for each output channel."""

from __future__ import annotations

import math
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mobileprep.numerics.histogram import Histogram
from mobileprep.numerics.observed_values import ObservedValues
from mobileprep.numerics.range_methods import observed_range

ChannelMethod: TypeAlias = Literal["min_max", "percentile", "entropy", "mse"]

USUAL_PERCENTILE: Final = 99.99

SHARES: Final = tuple(share / 40 for share in range(40, 15, -1))
"""Shares of the widest range that are tried for the least squared error."""

# Channels of smaller weights count as zero, so that steps stay normal numbers.
_TINY: Final = float(np.finfo(np.float32).tiny) * 256


def channel_steps(
    weights: NDArray[Any],
    axes: tuple[int, ...],
    method: ChannelMethod,
    most: int,
    percentile: float = USUAL_PERCENTILE,
) -> NDArray[np.float32]:
    """How far apart the values are that the weights of each output channel are rounded to.

    Args:
        weights: finite float32.
        axes: the axes that make up the output channels, counted from the last: -1.
        method: ``min_max`` covers every weight; ``percentile`` leaves out the largest magnitudes
            of each channel; ``entropy`` loses least of how they are distributed, see
            ``range_methods.entropy_range``, with as many levels as there are steps, and covers
            every weight of a channel with no more weights than levels; ``mse`` cuts the largest
            off where that makes the channel's squared error smaller, by the best of ``SHARES``, of
            equal ones the widest. Source: Banner et al., "Post training 4-bit quantization of
            convolutional networks for rapid-deployment", 2019, by search instead of a
            distribution's formula.
        most: steps on either side of zero: 127 for eight bits.
        percentile: how many percent of the magnitudes ``percentile`` keeps.

    Returns:
        Positive float32 in the weights' shape, with ones for the axes that are no channels; 1 for
        channels that hold nothing but zeros.
    """
    others = tuple(i for i in range(weights.ndim) if i - weights.ndim not in axes)
    largest = np.abs(weights).max(axis=others, keepdims=True, initial=0)
    if method in ("percentile", "entropy") and weights.size:
        kept = [_kept(x, method, most + 1, percentile) for x in _channels(weights, others)]
        largest = np.array(kept, np.float32).reshape(largest.shape)
    sizes = np.where(largest > _TINY, largest / most, 1).astype(np.float32)
    return _least_squares(weights, others, sizes, most) if method == "mse" else sizes


def _channels(weights: NDArray[Any], others: tuple[int, ...]) -> NDArray[Any]:
    """The magnitudes of each channel: [channels, weights of each]."""
    magnitudes = np.moveaxis(np.abs(weights), others, range(-len(others), 0))
    found: NDArray[Any] = magnitudes.reshape(
        -1, math.prod(magnitudes.shape[-len(others) :]) if others else 1
    )
    return found


def _kept(magnitudes: NDArray[Any], method: str, levels: int, percentile: float) -> float:
    """The largest magnitude that a channel's range has; the largest of all where none is left."""
    largest = float(magnitudes.max())
    if method == "percentile":
        cut = int(magnitudes.size * (100 - percentile) / 100)
        found = float(np.partition(magnitudes, magnitudes.size - 1 - cut)[-1 - cut])
    elif magnitudes.size <= levels or largest <= _TINY:
        found = largest
    else:
        values = ObservedValues(histogram=Histogram())
        values.add(magnitudes)
        found = observed_range(values, method, percentile, levels)[1]
    return found if found > _TINY else largest


def _least_squares(
    weights: NDArray[Any], others: tuple[int, ...], sizes: NDArray[np.float32], most: int
) -> NDArray[np.float32]:
    """The best share of each channel's size."""
    best, least = np.ones_like(sizes), np.full_like(sizes, np.inf)
    for share in SHARES:
        tried = sizes * np.float32(share)
        found = np.clip(np.rint(weights / tried), -most, most) * tried
        error = np.square(found - weights).sum(axis=others, keepdims=True)
        better = error < least
        best, least = np.where(better, np.float32(share), best), np.where(better, error, least)
    best_sizes: NDArray[np.float32] = sizes * best
    return best_sizes
