"""Mel-frequency cepstral coefficients, which speech recognition starts from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mobileprep.ir.attrs import TensorShape
from mobileprep.ir.node import Node
from mobileprep.ir.tensor import Array
from mobileprep.ops.arrays import check_allocation, scalar
from mobileprep.ops.cost import Sizes, flop_rule
from mobileprep.ops.dims import with_rank
from mobileprep.ops.kernel import kernel
from mobileprep.ops.shape_function import ShapeArgs, shape_fn

# What is added to nothing before its logarithm is taken, as TensorFlow has it.
_LEAST_ENERGY = 1e-12


@kernel("Mfcc")
def mfcc(node: Node, spectrogram: Array, rate: Array) -> Array:
    """Mel-frequency cepstral coefficients of a squared spectrogram.

    Args:
        node: with ``lower_frequency_limit``, ``upper_frequency_limit`` in Hz,
            ``filterbank_channel_count`` and ``dct_coefficient_count``.
        spectrogram: float32 [channels, windows, frequencies].
        rate: the sample rate in Hz.

    Returns:
        float32 [channels, windows, coefficients].

    Source: ``mfcc.cc`` and ``mfcc_mel_filterbank.cc`` of TensorFlow.
    """
    bands = node.attr_int("filterbank_channel_count", 40)
    coefficients = node.attr_int("dct_coefficient_count", 13)
    lower = node.attr_float("lower_frequency_limit", 20.0)
    upper = node.attr_float("upper_frequency_limit", 4000.0)
    hertz = scalar(rate)
    if spectrogram.ndim != 3 or spectrogram.shape[2] < 2 or hertz < 1 or not 0 <= lower < upper:
        message = f"frequencies from {lower} to {upper} Hz of samples at {hertz} Hz"
        raise ValueError(message)
    if not 1 <= coefficients <= bands:
        message = f"{coefficients} coefficients of {bands} bands"
        raise ValueError(message)
    check_allocation((spectrogram.shape[2] + coefficients, bands), np.dtype(np.float64))
    filters = _mel_filters(spectrogram.shape[2], hertz, bands, lower, upper)
    energy = np.sqrt(spectrogram.astype(np.float64)) @ filters
    angles = np.outer(np.arange(bands) + 0.5, np.arange(coefficients)) * (math.pi / bands)
    cosines = math.sqrt(2 / bands) * np.cos(angles)
    out: Array = np.log(np.maximum(energy, _LEAST_ENERGY)) @ cosines
    return out.astype(np.float32)


@shape_fn("Mfcc")
def mfcc_shape(args: ShapeArgs) -> Sequence[TensorShape]:
    """Channels by windows by coefficients."""
    channels, windows, _ = with_rank(args.shapes[0], 3)
    return [(channels, windows, args.node.attr_int("dct_coefficient_count", 13))]


@flop_rule("Mfcc")
def mfcc_flops(sizes: Sizes) -> float:
    """Roots, overlapping sums, logarithms and a cosine transform, at each place."""
    channels, windows, frequencies = sizes.input(0)
    bands = sizes.node.attr_int("filterbank_channel_count", 40)
    coefficients = sizes.node.attr_int("dct_coefficient_count", 13)
    return channels * windows * (5 * frequencies + bands + 2 * bands * coefficients)


def _mel_filters(count: int, rate: int, bands: int, lower: float, upper: float) -> Array:
    """How much each of ``count`` frequencies adds to each band: overlapping triangles."""
    step = 0.5 * rate / (count - 1)
    # The first is left out even where the lower limit is 0: it is the mean of the samples.
    first, last = int(1.5 + lower / step), int(upper / step)
    if last >= count:
        message = f"the upper limit of {upper} Hz is beyond the half of {rate} Hz"
        raise ValueError(message)
    low, high = _mel(np.array([lower, upper]))
    centres = low + (high - low) / (bands + 1) * np.arange(1, bands + 2)
    places = np.arange(first, last + 1)
    mels = _mel(places * step)
    # The band on whose falling side, and the next, on whose rising side, a frequency lies.
    band = np.minimum(np.searchsorted(centres, mels, side="left"), bands) - 1
    edges = np.concatenate([[low], centres])
    share = (edges[band + 2] - mels) / (edges[band + 2] - edges[band + 1])
    filters = np.zeros((count, bands + 2))
    filters[places, band + 1] = share
    filters[places, band + 2] = 1 - share
    return filters[:, 1 : bands + 1]


def _mel(frequency: Array) -> Array:
    mels: Array = 1127.0 * np.log1p(frequency / 700.0)
    return mels
