"""Constant weights as 8-bit numbers, with steps per tensor or per output channel."""

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

# The zero point of symmetric numbers.
_MIDDLE: Final = 128
_HIGHEST: Final = LEVELS - 1


class QuantizedWeights(Struct, frozen=True):
    """Weights as 8-bit numbers.

    Args:
        values: uint8, of the weights' shape.
        steps: the values that they represent, before scaling.
        scales: float32 [channels], factors of the floats of each output channel; None if all
            channels have the same steps.
    """

    values: Array
    steps: EvenSteps
    scales: Array | None = None


class WeightSettings(Struct, frozen=True):
    """Quantization settings of weights.

    Args:
        bits: 2 to 8; fewer than 8 are stored in 8, and compress better.
        granularity: steps for the whole tensor or for each output channel; None for the one with
            the smaller error.
        method: ``min_max`` covers all weights; ``percentile`` clips a share of them; ``entropy``
            minimizes the change in their distribution; ``mse`` clips the largest if that reduces
            the sum of squared errors. None is ``mse`` for blocks, and otherwise ``min_max``.
        percentile: percentage of the weights that ``percentile`` keeps.
        block_size: weights of an output channel that share a scale, for LiteRT; 0 without blocks.
    """

    bits: int = 8
    granularity: Granularity | None = None
    method: ChannelMethod | None = None
    percentile: float = USUAL_PERCENTILE
    block_size: int = 0

    @property
    def range_method(self) -> ChannelMethod:
        """The method that applies."""
        return self.method or ("mse" if self.block_size else "min_max")


def quantize_weights(
    weights: Array, axes: tuple[int, ...], settings: WeightSettings
) -> QuantizedWeights:
    """Quantize finite float32 weights to 8-bit numbers.

    Args:
        axes: the axes of the output channels, counted from the last: -1.
    """
    if settings.granularity != "channel":
        steps = steps_of_lattice(weights, 1 << settings.bits)
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
    """Quantize weights that lie on steps for the whole tensor."""
    return QuantizedWeights(steps.nearest(weights, lowest, highest), steps)


def on_channel_steps(weights: Array, axes: tuple[int, ...], sizes: Array) -> QuantizedWeights:
    """Quantize weights that lie on at most 127 steps to either side, with one size per channel."""
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

    best = steps(min(SHARES, key=error) if settings.range_method == "mse" else 1.0)
    levels = rounded_with_sums(weights / np.float32(best.size), axes) + np.float32(best.zero)
    return QuantizedWeights(np.clip(levels, 0, highest).astype(np.uint8), best)


def _whole_range(weights: Array, settings: WeightSettings) -> tuple[float, float]:
    """Return the covered range of a tensor's weights, before ``mse`` narrows it."""
    levels = 1 << (settings.bits - 1)
    is_cut = settings.range_method == "percentile" or (
        settings.range_method == "entropy" and weights.size > levels
    )
    if not is_cut or not weights.size:
        return float(weights.min(initial=0)), float(weights.max(initial=0))
    values = ObservedValues(histogram=Histogram())
    for start in range(0, weights.size, MOST_COUNTED):
        values.add(weights.reshape(-1)[start : start + MOST_COUNTED])
    return observed_range(values, settings.range_method, settings.percentile, levels)


def _by_channel(
    weights: Array, axes: tuple[int, ...], settings: WeightSettings
) -> QuantizedWeights:
    half = (1 << (settings.bits - 1)) - 1
    sizes = channel_steps(weights, axes, settings.range_method, half, settings.percentile)
    return _around_middle(rounded_with_sums(weights / sizes, axes), sizes, half)


def _around_middle(levels: Array, sizes: Array, half: int) -> QuantizedWeights:
    values = (np.clip(levels, -half, half) + _MIDDLE).astype(np.uint8)
    return QuantizedWeights(values, EvenSteps(1.0, _MIDDLE), sizes.reshape(-1).astype(np.float32))


def _error(weights: Array, quantized: QuantizedWeights, axes: tuple[int, ...]) -> float:
    """Return the sum over channels of the squared error relative to the squared weights.

    The layers after it compensate for the magnitude of its channels, so all channels have equal
    weight.
    """
    levels = quantized.values.astype(np.float32) - np.float32(quantized.steps.zero)
    sizes: Array | np.float32 = np.float32(quantized.steps.size)
    if quantized.scales is not None:
        sizes = quantized.scales.reshape(_channel_shape(weights, axes))
    others = tuple(i for i in range(weights.ndim) if i - weights.ndim not in axes)
    wrong = np.square(levels * sizes - weights).sum(axis=others, dtype=np.float64)
    power = np.square(weights).sum(axis=others, dtype=np.float64)
    return float((wrong / np.maximum(power, np.finfo(np.float32).tiny)).sum())


def _channel_shape(weights: Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the weights' shape with all dimensions 1 except the channels."""
    return tuple(size if i - weights.ndim in axes else 1 for i, size in enumerate(weights.shape))


def rounded_with_sums(values: Array, axes: tuple[int, ...]) -> Array:
    """Round values to integers with sums that are as close as possible to those of the values.

    Activations mostly have a mean far from zero, which multiplies the sum of a channel's rounding
    errors: rounding each weight to the nearest integer shifts whole channels. If the errors add up
    to more than a half, the weights closest to the next integer are rounded to it. Nagel et al.,
    "Data-Free Quantization Through Weight Equalization and Bias Correction" (2019), section 3.2,
    correct this shift in the bias afterwards, which requires the means. This rounding assumes that
    the means of a layer's inputs are similar.

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
        # Stable, so that results are the same on all platforms.
        order = np.argsort(-errors[:, channel] * sign, kind="stable")
        whole[order[:count], channel] += sign
    out: Array = np.moveaxis(whole.reshape(moved.shape), last, places)
    return out


_FEW: Final = 1 << 12
# Single-precision products of a step and an integer have a smaller error, in steps.
_SLACK: Final = 1e-3


def steps_of_lattice(weights: Array, most: int = LEVELS) -> EvenSteps | None:
    """Return the steps, including zero, that all weights lie on, or None if there are none.

    Args:
        weights: finite float32 numbers.
        most: the largest number of levels.
    """
    flat = weights.reshape(-1)
    if np.unique(flat[:_FEW]).size > most:
        return None
    values = np.unique(flat).astype(np.float64)
    if not 2 <= values.size <= most:
        return None
    size = float(np.diff(values).min())
    if size <= np.finfo(np.float32).tiny:
        return None
    whole = np.rint(values / size)
    lowest, highest = min(whole[0], 0), max(whole[-1], 0)
    if not 0 < highest - lowest < most:
        return None
    # The difference of two rounded numbers is less exact than the largest of them.
    size = float((values * whole).sum() / np.square(whole).sum())
    is_on_steps = np.abs(values / size - whole).max() < _SLACK
    return EvenSteps(size, int(-lowest)) if is_on_steps else None
