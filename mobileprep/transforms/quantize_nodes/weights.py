"""Constant weights as eight-bit numbers, with steps for all or for each output channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from mobileprep.ir.tensor import Array
from mobileprep.transforms.quantize_nodes.steps import Steps

Granularity: TypeAlias = Literal["tensor", "channel"]
Method: TypeAlias = Literal["min_max", "mse"]

# The zero of numbers that lie evenly around it.
_MIDDLE: Final = 128
# Shares of the widest range that are tried for the least squared error.
_SHARES: Final = tuple(share / 40 for share in range(40, 15, -1))


@dataclass(frozen=True)
class QuantizedWeights:
    """Weights as eight-bit numbers.

    Args:
        values: uint8, of the weights' shape.
        steps: what they stand for, up to the scales.
        scales: float32 [channels], which the floats of each output channel are multiplied by;
            None where all have the same steps.
    """

    values: Array
    steps: Steps
    scales: Array | None = None


@dataclass(frozen=True)
class WeightSettings:
    """How weights are quantized.

    Args:
        bits: 2 to 8; fewer than 8 are stored in 8, and compress better.
        granularity: steps for the whole tensor, or for each output channel.
        method: ``min_max`` covers every weight; ``mse`` cuts the largest off where that makes the
            sum of squared errors smaller.
    """

    bits: int = 8
    granularity: Granularity = "channel"
    method: Method = "min_max"


def quantize_weights(
    weights: Array, channel_axes: tuple[int, ...], settings: WeightSettings
) -> QuantizedWeights:
    """Finite float32 weights as eight-bit numbers.

    Args:
        weights: the weights.
        channel_axes: the axes that make up the output channels, counted from the last: -1.
        settings: how.
    """
    if settings.granularity == "channel":
        return _by_channel(weights, channel_axes, settings)
    return _all_alike(weights, settings)


def on_steps(weights: Array, steps: Steps, lowest: int, highest: int) -> QuantizedWeights:
    """Weights whose steps were learnt in training."""
    return QuantizedWeights(steps.nearest(weights, lowest, highest), steps)


def on_channel_steps(weights: Array, axes: tuple[int, ...], sizes: Array) -> QuantizedWeights:
    """Weights as numbers of -127 to 127, of steps for each output channel."""
    wide = sizes.reshape(_broadcast(weights, axes))
    values = np.clip(np.rint(weights / wide), -_MIDDLE + 1, _MIDDLE - 1) + _MIDDLE
    return QuantizedWeights(
        values.astype(np.uint8), Steps(1.0, _MIDDLE), sizes.reshape(-1).astype(np.float32)
    )


def _all_alike(weights: Array, settings: WeightSettings) -> QuantizedWeights:
    low, high = float(weights.min(initial=0)), float(weights.max(initial=0))
    highest = (1 << settings.bits) - 1

    def steps(share: float) -> Steps:
        wide = Steps.over(low * share, high * share)
        size = wide.size * 255 / highest
        return Steps(size, round(wide.zero * highest / 255))

    def error(share: float) -> float:
        of = steps(share)
        levels = of.nearest(weights, 0, highest).astype(np.float32) - np.float32(of.zero)
        return float(np.square(levels * np.float32(of.size) - weights).sum(dtype=np.float64))

    shares = _SHARES if settings.method == "mse" else _SHARES[:1]
    best = steps(min(shares, key=error) if len(shares) > 1 else shares[0])
    return QuantizedWeights(best.nearest(weights, 0, highest), best)


def _by_channel(
    weights: Array, axes: tuple[int, ...], settings: WeightSettings
) -> QuantizedWeights:
    shape = _broadcast(weights, axes)
    others = tuple(i for i, size in enumerate(shape) if i - weights.ndim not in axes)
    largest = np.abs(weights).max(axis=others, keepdims=True, initial=0)
    half = (1 << (settings.bits - 1)) - 1
    sizes = np.where(largest > np.finfo(np.float32).tiny * 256, largest / half, 1)
    sizes = sizes.astype(np.float32)
    if settings.method == "mse":
        sizes = sizes * _best_shares(weights, sizes, others, half)
    # A number beyond the bits is one that the method cuts off.
    held = np.clip(weights, -half * sizes, half * sizes)
    return on_channel_steps(held, axes, sizes)


def _best_shares(weights: Array, sizes: Array, others: tuple[int, ...], half: int) -> Array:
    """For each channel the share of its steps of the least squared error; the widest of equal."""
    best = np.ones_like(sizes)
    least = np.full_like(sizes, np.inf)
    for share in _SHARES:
        tried = sizes * np.float32(share)
        found = np.clip(np.rint(weights / tried), -half, half) * tried
        error = np.square(found - weights).sum(axis=others, keepdims=True)
        better = error < least
        best, least = np.where(better, np.float32(share), best), np.where(better, error, least)
    return best


def _broadcast(weights: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The weights' shape with ones beside the channels."""
    return tuple(size if i - weights.ndim in axes else 1 for i, size in enumerate(weights.shape))
