"""Ranges of observed values: histograms, methods, and steps of weights per channel."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mobileprep.ops.numerics.parallel import for_each

BINS: Final = 2048
"""Bins on each side of the one around zero."""

_LOG_BINS: Final = 11
# Counters that take turns: values after an activation are often equal, and an addition to a counter
# waits for the one before it to the same.
_TURNS: Final = 2
# Small enough to stay in a core's cache with its scaled copy.
_BLOCK: Final = 1 << 15
# Smaller scales are not normal float32 numbers.
_LEAST_SINGLE: Final = -126
# Where the bin around zero is, for each value of a block.
_PLACES: Final = np.arange(_BLOCK) % _TURNS * (2 * BINS + 1) + BINS


@dataclass
class Histogram:
    """How many values lie in which of ``2 * BINS + 1`` bins.

    Bin ``i`` from ``-BINS`` to ``BINS`` holds the values ``x`` whose ``x / 2**exponent``, its
    fraction cut off, is ``i``: all bins have the width ``2**exponent`` but the one around zero,
    which reaches from ``-2**exponent`` to ``2**exponent``. The exponent is the least with which the
    values fit. When it grows, bins are merged; as they are aligned at zero and their widths are
    powers of two, the result equals a new count, so that the order of values and their division
    into parts do not matter.

    Args:
        exponent: of the width, None where all values are zero or there are none.
        counts: int64 of shape [2 * BINS + 1].
    """

    exponent: int | None = None
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2 * BINS + 1, np.int64))

    def add(self, values: NDArray[Any], largest: float) -> None:
        """Count values.

        Args:
            values: finite float32, of any shape.
        """
        if largest == 0:
            self.counts[BINS] += values.size
            return
        self._widen(_exponent(largest))
        flat = values.reshape(-1)
        lock = threading.Lock()

        def count(start: int) -> None:
            found = self._counted(flat[start : start + _BLOCK])
            with lock:
                self.counts += found

        for_each(count, range(0, flat.size, _BLOCK))

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        if other.exponent is None:
            self.counts += other.counts
            return
        self._widen(other.exponent)
        assert self.exponent is not None
        self.counts += _merged(other.counts, self.exponent - other.exponent)

    def edges(self) -> NDArray[np.float64]:
        """The lower ends of the bins from ``-BINS`` on, and the upper end of the last.

        Of shape [2 * BINS + 2]; the bin around zero reaches from the end before to the one after.
        """
        width = math.ldexp(1.0, self.exponent or 0)
        below = np.arange(-BINS - 1, 0, dtype=np.float64)
        return np.concatenate([below, -below[::-1]]) * width

    def _widen(self, exponent: int) -> None:
        if self.exponent is None:
            self.exponent = exponent
        elif exponent > self.exponent:
            self.counts = _merged(self.counts, exponent - self.exponent)
            self.exponent = exponent

    def _counted(self, values: NDArray[Any]) -> NDArray[np.int64]:
        assert self.exponent is not None
        places = np.empty(values.size, np.int64)
        if self.exponent >= _LEAST_SINGLE:
            scale: np.floating[Any] = np.float32(math.ldexp(1.0, -self.exponent))
        else:
            scale = np.float64(math.ldexp(1.0, -self.exponent))
        # Scaling by a power of two is exact, and the conversion cuts fractions off. What is too
        # small to be scaled exactly is in the bin around zero in either case.
        np.multiply(values, scale, out=places, casting="unsafe")
        places += _PLACES[: places.size]
        counts = np.bincount(places, minlength=_TURNS * (2 * BINS + 1))
        found: NDArray[np.int64] = counts.reshape(_TURNS, -1).sum(axis=0)
        return found


def _exponent(largest: float) -> int:
    """The exponent of the narrowest bins that hold magnitudes up to one."""
    return math.frexp(largest)[1] - _LOG_BINS


def _merged(counts: NDArray[np.int64], steps: int) -> NDArray[np.int64]:
    """Counts in bins that are wider by a power of two."""
    if not steps:
        return counts
    places = np.arange(-BINS, BINS + 1)
    wider = np.sign(places) * (np.abs(places) >> min(steps, _LOG_BINS + 1))
    found = np.zeros_like(counts)
    np.add.at(found, wider + BINS, counts)
    return found


# Enough for a pass to be worth a thread.
_VALUES_BLOCK: Final = 1 << 16
MOST_COUNTED: Final = 1 << 18
"""How many values a histogram counts of those that are added at once."""


@dataclass
class ObservedValues:
    """The values of a tensor, as much of them as the methods need.

    The ends are those of all values. Of more than ``MOST_COUNTED`` that are added at once, the
    histogram counts some that are spread evenly over them: a convolution's output has millions for
    each picture, and counting them would take longer than the convolution.

    Args:
        low: the least; infinity where there are none.
        high: the greatest; minus infinity where there are none.
        count: how many.
        histogram: how many lie where; None where no method asks.
    """

    low: float = np.inf
    high: float = -np.inf
    count: int = 0
    histogram: Histogram | None = field(default=None)

    def add(self, values: NDArray[Any], known: tuple[float, float] | None = None) -> bool:
        """Take note of float32 values; whether all of them are finite, else none is noted.

        Args:
            values: of any shape.
        """
        if not values.size:
            return True
        low, high = ends(values) if known is None else known
        if not (np.isfinite(low) and np.isfinite(high)):
            return False
        self.low, self.high = min(self.low, low), max(self.high, high)
        self.count += values.size
        if self.histogram is not None:
            self.histogram.add(thinned(values), max(-low, high))
        return True

    def merge(self, other: ObservedValues) -> None:
        """Merge the values of another observer."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.count += other.count
        if self.histogram is not None and other.histogram is not None:
            self.histogram.merge(other.histogram)


def thinned(values: NDArray[Any]) -> NDArray[Any]:
    """About ``MOST_COUNTED`` of some values: whole last axes, so every channel, evenly spread."""
    channels, width = (values.shape[-1], values.shape[-2]) if values.ndim > 1 else (1, 1)
    rows = values.reshape(-1, channels)
    step = max(-(-values.size // MOST_COUNTED), 1)
    # A step that has a divisor in common with the width would always meet the same columns.
    while math.gcd(step, width) > 1:
        step += 1
    return rows[::step]


def ends(values: NDArray[Any]) -> tuple[float, float]:
    """The least and the greatest of some values, NaN where one is NaN."""
    flat = values.reshape(-1)
    starts = range(0, flat.size, _VALUES_BLOCK)
    found = np.empty((2, len(starts)), flat.dtype)

    def note(start: int) -> None:
        part = flat[start : start + _VALUES_BLOCK]
        found[:, start // _VALUES_BLOCK] = part.min(), part.max()

    for_each(note, starts)
    # Zero without its sign: which of two zeros is met first depends on the order.
    return float(found[0].min()) + 0.0, float(found[1].max()) + 0.0


_LEVELS: Final = 256
# Ends that the search for the least squared error tries on each side.
_TRIED: Final = 256
ENTROPY_LEVELS: Final = 128
"""Number of levels on each side of a symmetric 8-bit range."""
# How far apart tried ends are.
_ENTROPY_STRIDE: Final = 8

Range = tuple[float, float]


def observed_range(
    values: ObservedValues, method: str, percentile: float, levels: int = ENTROPY_LEVELS
) -> Range:
    """The range of some values, one at least, within their least and greatest.

    Args:
        percentile: how many percent of the values ``percentile`` keeps.
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
    Selects the minimum over a grid of ends. Source: the search of Banner et al., "Post training
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
        percentile: how many percent of the magnitudes ``percentile`` keeps.

    Returns:
        Positive float32 in the weights' shape, with ones for other axes than channels; 1 for
        channels of zeros.
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
