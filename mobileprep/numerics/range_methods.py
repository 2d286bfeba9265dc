"""From observed values to the range that eight bits are to cover."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from mobileprep.numerics.histogram import BINS, Histogram
from mobileprep.numerics.observed_values import ObservedValues

_LEVELS: Final = 256
# Ends that the search for the least squared error tries on each side.
_TRIED: Final = 256
ENTROPY_LEVELS: Final = 128
"""As many levels as a symmetric range of eight bits has on each side."""
# How far apart tried ends are.
_ENTROPY_STRIDE: Final = 8

Range = tuple[float, float]


def observed_range(
    values: ObservedValues, method: str, percentile: float, levels: int = ENTROPY_LEVELS
) -> Range:
    """The range of some values, one at least, within their least and greatest.

    Args:
        values: what was observed; with a histogram but for ``min_max``.
        method: ``min_max``, ``percentile``, ``entropy`` or ``mse``.
        percentile: how many percent of the values ``percentile`` keeps.
        levels: those on each side of zero that ``entropy`` takes the range to have.

    Returns:
        Its ends as float32 has them.
    """
    low, high = values.low, values.high
    histogram = values.histogram
    if histogram is not None and histogram.exponent is not None and low < high:
        if method == "percentile":
            found = percentile_range(histogram, percentile)
        elif method == "entropy":
            found = entropy_range(histogram, levels)
        else:
            found = least_squares_range(histogram)
        low, high = min(max(low, found[0]), high), max(min(high, found[1]), low)
    return float(np.float32(low)), float(np.float32(high))


def percentile_range(histogram: Histogram, percentile: float) -> Range:
    """The bins that hold a share of the values, as much cut off at either end.

    Source: ``PercentileCalibrater`` of ONNX Runtime, asymmetric.
    """
    total = int(histogram.counts.sum())
    cut = int(total * ((100.0 - percentile) / 200.0))
    up = np.cumsum(histogram.counts)
    first = int(np.searchsorted(up, cut, side="right"))
    last = int(np.searchsorted(up, total - cut, side="left"))
    edges = histogram.edges()
    return _lower(edges, first), _upper(edges, last)


def least_squares_range(histogram: Histogram) -> Range:
    """The range with the least mean squared error of rounding and clipping together.

    What is rounded is off by a twelfth of a squared step on average; what is clipped, by its
    distance to the end. Values in the bin around zero are counted as exact, since a zero point is.
    The least over a grid of ends is taken. Source: the search of Banner et al., "Post training
    4-bit quantization of convolutional networks for rapid-deployment", 2019, over a histogram and
    with both ends free.
    """
    counts = histogram.counts.astype(np.float64)
    width = float(np.ldexp(1.0, histogram.exponent or 0))
    below, below_error = _clipped(counts[:BINS][::-1], width)
    above, above_error = _clipped(counts[BINS + 1 :], width)
    tried = np.linspace(0, BINS, _TRIED + 1).astype(np.int64)
    ends = tried * width
    kept = below.max() + above.max() - below[tried][:, None] - above[tried][None, :]
    steps = (ends[:, None] + ends[None, :]) / (_LEVELS - 1)
    error = kept * steps**2 / 12 + below_error[tried][:, None] + above_error[tried][None, :]
    error[0, 0] = np.inf
    low, high = np.unravel_index(int(error.argmin()), error.shape)
    return -float(ends[low]), float(ends[high])


def _clipped(counts: NDArray[Any], width: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """For each end of one side: how many values lie beyond, and the sum of squared distances.

    Ends are at 0, 1, ... ``BINS`` widths. Of the counts, which are those of the bins from 1 on,
    each stands for values in the middle of its bin.
    """
    there = np.concatenate([[0.0], counts])
    ends = np.arange(BINS + 1)
    beyond = [np.cumsum((there * (ends + 0.5) ** power)[::-1])[::-1] for power in (0, 1, 2)]
    number, first, second = beyond
    error = second - 2 * ends * first + ends**2 * number
    return number, np.maximum(error, 0) * width**2


def entropy_range(histogram: Histogram, levels: int = ENTROPY_LEVELS) -> Range:
    """The symmetric range after which the least is lost of how the values are distributed.

    For each end, the values beyond are put into the last bins; the loss is the Kullback-Leibler
    divergence of that from the same in so many levels, each spread evenly over the bins that are
    not empty. Ends are tried every 8 bins from one bin for each level on. Source: Migacz, "8-bit
    inference with TensorRT", 2017, on magnitudes; the bin around zero counts as in NVIDIA's
    pytorch-quantization.
    """
    counts = histogram.counts
    magnitudes = counts[BINS:].astype(np.float64)
    magnitudes[1:] += counts[:BINS][::-1]
    # Zeros are exact in any range, and after a Relu would outweigh all else.
    magnitudes[0] = magnitudes[1]
    ends = range(levels, BINS + 1, _ENTROPY_STRIDE)
    losses = [_divergence(magnitudes, end, levels) for end in ends]
    end = ends[int(np.argmin(losses))] * float(np.ldexp(1.0, histogram.exponent or 0))
    return -end, end


def _divergence(magnitudes: NDArray[Any], end: int, levels: int) -> float:
    kept = magnitudes[:end]
    wanted = kept.copy()
    wanted[-1] += magnitudes[end:].sum()
    level = np.arange(end) * levels // end
    filled = kept > 0
    sums = np.bincount(level, kept, levels)
    members = np.bincount(level, filled, levels)
    spread = np.where(filled, (sums / np.maximum(members, 1))[level], 0.0)
    total, spread_total = wanted.sum(), spread.sum()
    if not total or not spread_total:
        return float("inf")
    p, q = wanted / total, spread / spread_total
    if (q[p > 0] == 0).any():
        # Outliers alone in the last bin: as likely as one value of it would be.
        q = np.maximum(q, 1 / spread_total)
    there = p > 0
    return float(np.sum(p[there] * np.log(p[there] / q[there])))


def _lower(edges: NDArray[Any], place: int) -> float:
    return float(edges[place])


def _upper(edges: NDArray[Any], place: int) -> float:
    return float(edges[place + 1])
