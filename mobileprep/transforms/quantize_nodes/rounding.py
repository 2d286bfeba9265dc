"""Rounding of weights that keeps the sum of each output channel."""

from __future__ import annotations

import numpy as np

from mobileprep.ir.tensor import Array


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

    Returns:
        float32, at most one from each value.
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
