"""Constant weights as eight-bit numbers, with steps for all or for each output channel."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from mobileprep.graph.tensor import Array
from mobileprep.ops.numerics.ranges import (
    MOST_COUNTED,
    SHARES,
    USUAL_PERCENTILE,
    ChannelMethod,
    Histogram,
    ObservedValues,
    channel_steps,
    observed_range,
)
from mobileprep.transforms.quantize_nodes.nodes import LEVELS, EvenSteps

Granularity: TypeAlias = Literal["tensor", "channel"]

_MOST_BITS: Final = 8
# The zero of numbers that lie evenly around it.
_MIDDLE: Final = 128
_HIGHEST: Final = LEVELS - 1


class QuantizedWeights(Struct, frozen=True):
    """Weights as eight-bit numbers.

    Args:
        values: uint8, of the weights' shape.
        steps: what they stand for, up to the scales.
        scales: float32 [channels], which the floats of each output channel are multiplied by;
            None where all have the same steps.
    """

    values: Array
    steps: EvenSteps
    scales: Array | None = None


class WeightSettings(Struct, frozen=True):
    """How weights are quantized.

    Args:
        bits: 2 to 8; fewer than 8 are stored in 8, and compress better.
        granularity: steps for the whole tensor, or for each output channel; None for whichever
            comes nearer to the weights.
        method: ``min_max`` covers every weight; ``percentile`` cuts a share of them off;
            ``entropy`` loses least of how they are distributed; ``mse`` cuts the largest off where
            that makes the sum of squared errors smaller.
        percentile: how many percent of the weights ``percentile`` keeps.
    """

    bits: int = 8
    granularity: Granularity | None = None
    method: ChannelMethod = "min_max"
    percentile: float = USUAL_PERCENTILE


def quantize_weights(
    weights: Array, axes: tuple[int, ...], settings: WeightSettings
) -> QuantizedWeights:
    """Finite float32 weights as eight-bit numbers.

    Args:
        axes: the axes that make up the output channels, counted from the last: -1.
    """
    if settings.bits == _MOST_BITS and settings.granularity != "channel":
        steps = steps_of_lattice(weights)
        if steps is not None:
            return on_steps(weights, steps, 0, _HIGHEST)
    if settings.granularity == "tensor":
        return _all_alike(weights, axes, settings)
    by_channel = _by_channel(weights, axes, settings)
    if settings.granularity == "channel":
        return by_channel
    alike = _all_alike(weights, axes, settings)
    nearer = _error(weights, alike, axes) <= _error(weights, by_channel, axes)
    return alike if nearer else by_channel


def on_steps(weights: Array, steps: EvenSteps, lowest: int, highest: int) -> QuantizedWeights:
    """Weights that lie on steps for the whole tensor."""
    return QuantizedWeights(steps.nearest(weights, lowest, highest), steps)


def on_channel_steps(weights: Array, axes: tuple[int, ...], sizes: Array) -> QuantizedWeights:
    """Weights that lie on at most 127 steps to either side, of a size for each output channel."""
    wide = sizes.reshape(_channel_shape(weights, axes))
    return _around_middle(np.rint(weights / wide), wide, _MIDDLE - 1)


def _all_alike(weights: Array, axes: tuple[int, ...], settings: WeightSettings) -> QuantizedWeights:
    low, high = _whole_range(weights, settings)
    highest = (1 << settings.bits) - 1

    def steps(share: float) -> EvenSteps:
        wide = EvenSteps.over(low * share, high * share)
        return EvenSteps(wide.size * _HIGHEST / highest, round(wide.zero * highest / _HIGHEST))

    def error(share: float) -> float:
        of = steps(share)
        return _error(weights, on_steps(weights, of, 0, highest), axes)

    best = steps(min(SHARES, key=error) if settings.method == "mse" else 1.0)
    levels = rounded_with_sums(weights / np.float32(best.size), axes) + np.float32(best.zero)
    return QuantizedWeights(np.clip(levels, 0, highest).astype(np.uint8), best)


def _whole_range(weights: Array, settings: WeightSettings) -> tuple[float, float]:
    """From where to where the weights of a tensor are covered, before ``mse`` narrows it."""
    levels = 1 << (settings.bits - 1)
    is_cut = settings.method == "percentile" or (
        settings.method == "entropy" and weights.size > levels
    )
    if not is_cut or not weights.size:
        return float(weights.min(initial=0)), float(weights.max(initial=0))
    values = ObservedValues(histogram=Histogram())
    for start in range(0, weights.size, MOST_COUNTED):
        values.add(weights.reshape(-1)[start : start + MOST_COUNTED])
    return observed_range(values, settings.method, settings.percentile, levels)


def _by_channel(
    weights: Array, axes: tuple[int, ...], settings: WeightSettings
) -> QuantizedWeights:
    half = (1 << (settings.bits - 1)) - 1
    sizes = channel_steps(weights, axes, settings.method, half, settings.percentile)
    return _around_middle(rounded_with_sums(weights / sizes, axes), sizes, half)


def _around_middle(levels: Array, sizes: Array, half: int) -> QuantizedWeights:
    values = (np.clip(levels, -half, half) + _MIDDLE).astype(np.uint8)
    return QuantizedWeights(values, EvenSteps(1.0, _MIDDLE), sizes.reshape(-1).astype(np.float32))


def _error(weights: Array, found: QuantizedWeights, axes: tuple[int, ...]) -> float:
    """The sum over channels of the squared error as a share of the squares.

    What follows a layer makes up for the size of its channels, so that each counts alike.
    """
    levels = found.values.astype(np.float32) - np.float32(found.steps.zero)
    sizes: Array | np.float32 = np.float32(found.steps.size)
    if found.scales is not None:
        sizes = found.scales.reshape(_channel_shape(weights, axes))
    others = tuple(i for i in range(weights.ndim) if i - weights.ndim not in axes)
    wrong = np.square(levels * sizes - weights).sum(axis=others, dtype=np.float64)
    power = np.square(weights).sum(axis=others, dtype=np.float64)
    return float((wrong / np.maximum(power, np.finfo(np.float32).tiny)).sum())


def _channel_shape(weights: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The weights' shape with ones beside the channels."""
    return tuple(size if i - weights.ndim in axes else 1 for i, size in enumerate(weights.shape))


def rounded_with_sums(values: Array, axes: tuple[int, ...]) -> Array:
    """Values rounded to whole numbers whose sums are the nearest to those of the values.

    Activations mostly have a mean far from zero, which multiplies the sum of a channel's rounding
    errors: rounding each weight to the nearest shifts whole channels. Where the errors add up to
    more than a half, those weights that are the nearest to the next number go there. This is the
    shift that Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias
    Correction" (2019), section 3.2, correct in the bias afterwards, which takes the means; that
    the means of a layer's inputs are alike is what rounding goes by.

    Args:
        values: any shape.
        axes: those of the output channels, counted from the last: -1.
    """
    places = [values.ndim + axis for axis in axes]
    last = list(range(-len(places), 0))
    moved = np.moveaxis(values, places, last)
    flat = moved.reshape(-1, int(np.prod(moved.shape[moved.ndim - len(places) :])))
    whole = np.rint(flat)
    errors = flat - whole
    missing = np.rint(errors.sum(axis=0, dtype=np.float64))
    for channel in np.flatnonzero(missing):
        count = int(abs(missing[channel]))
        sign = np.float32(np.sign(missing[channel]))
        # Stable, so that the same weights give the same numbers everywhere.
        order = np.argsort(-errors[:, channel] * sign, kind="stable")
        whole[order[:count], channel] += sign
    out: Array = np.moveaxis(whole.reshape(moved.shape), last, places)
    return out


_FEW: Final = 1 << 12
# Products of a step and a whole number, in single precision, are off by less of a step.
_SLACK: Final = 1e-3


def steps_of_lattice(weights: Array) -> EvenSteps | None:
    """The steps, zero among them, that all weights lie on; None where they lie on none.

    Args:
        weights: finite float32 numbers.
    """
    flat = weights.reshape(-1)
    if np.unique(flat[:_FEW]).size > LEVELS:
        return None
    values = np.unique(flat).astype(np.float64)
    if not 2 <= values.size <= LEVELS:
        return None
    size = float(np.diff(values).min())
    if size <= np.finfo(np.float32).tiny:
        return None
    whole = np.rint(values / size)
    lowest, highest = min(whole[0], 0), max(whole[-1], 0)
    if not 0 < highest - lowest < LEVELS:
        return None
    # The difference of two rounded numbers is less exact than the largest of them.
    size = float((values * whole).sum() / np.square(whole).sum())
    is_on_steps = np.abs(values / size - whole).max() < _SLACK
    return EvenSteps(size, int(-lowest)) if is_on_steps else None
