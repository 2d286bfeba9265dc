"""Ranges of observed values: histograms, methods, and step sizes of weights per channel."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mobileprep.ops.numerics.parallel import for_each

BINS: Final = 2048
"""Bins on each side of the bin around zero."""

_LOG_BINS: Final = 11
# Small enough to fit into a core's cache with its scaled copy.
_BLOCK: Final = 1 << 15
# Smaller scales are not normal float32 numbers.
_LEAST_SINGLE: Final = -126


@dataclass
class Histogram:
    """Counts of values in ``2 * BINS + 1`` bins.

    Bin ``i`` from ``-BINS`` to ``BINS`` holds the values ``x`` for which ``x / 2**exponent``,
    truncated, is ``i``. All bins have the width ``2**exponent`` except the one around zero, which
    covers ``-2**exponent`` to ``2**exponent``. The exponent is the smallest that fits all values.
    When it grows, bins are merged. Because bins are aligned at zero and widths are powers of two,
    the result equals a new count, so it does not depend on the order or the grouping of values.

    Args:
        exponent: of the width, None if all values are zero or there are none.
        counts: int64 of shape [2 * BINS + 1].
    """

    exponent: int | None = None
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2 * BINS + 1, np.int64))

    def add(self, values: NDArray[Any], largest: float) -> None:
        """Count values.

        Args:
            values: finite float32, of any shape.
            largest: the largest magnitude of the values.
        """
        if largest == 0:
            self.counts[BINS] += values.size
            return
        self._widen(_exponent(largest))
        flat = values.reshape(-1)
        lock = threading.Lock()

        def count(start: int) -> None:
            counts = self._counted(flat[start : start + _BLOCK])
            with lock:
                self.counts += counts

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
        """Return the lower ends of the bins from ``-BINS`` on, and the upper end of the last.

        The result has the shape [2 * BINS + 2]; the bin around zero spans the end before and the
        end after it.
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
        # Scaling by a power of two is exact, and the conversion truncates. Values too small to be
        # scaled exactly are in the bin around zero in any case.
        np.multiply(values, scale, out=places, casting="unsafe")
        places += BINS
        return np.bincount(places, minlength=2 * BINS + 1)


def _exponent(largest: float) -> int:
    """Return the exponent of the narrowest bins that hold magnitudes up to ``largest``."""
    return math.frexp(largest)[1] - _LOG_BINS


def _merged(counts: NDArray[np.int64], steps: int) -> NDArray[np.int64]:
    """Merge counts into bins that are wider by a power of two."""
    if not steps:
        return counts
    places = np.arange(-BINS, BINS + 1)
    wider = np.sign(places) * (np.abs(places) >> min(steps, _LOG_BINS + 1))
    out = np.zeros_like(counts)
    np.add.at(out, wider + BINS, counts)
    return out


# Large enough for a pass to be worth a thread.
_VALUES_BLOCK: Final = 1 << 16
MOST_COUNTED: Final = 1 << 18
"""The number of values, among those added at once, that a histogram counts."""


@dataclass
class ObservedValues:
    """The values of a tensor, as far as the range methods need them.

    The ends cover all values. If more than ``MOST_COUNTED`` values are added at once, the histogram
    counts an evenly spread part of them: a convolution's output has millions for each image, and
    counting them would take longer than the convolution.

    Args:
        low: the lowest value; infinity if there are none.
        high: the highest value; minus infinity if there are none.
        count: number of values.
        histogram: the histogram; None if no method needs it.
    """

    low: float = np.inf
    high: float = -np.inf
    count: int = 0
    histogram: Histogram | None = field(default=None)

    def add(self, values: NDArray[Any], bounds: tuple[float, float] | None = None) -> bool:
        """Add float32 values, unless one is not finite; return whether all are finite.

        Args:
            values: of any shape.
            bounds: the lowest and highest value, if already computed.
        """
        if not values.size:
            return True
        low, high = ends(values) if bounds is None else bounds
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
    """Select about ``MOST_COUNTED`` values: whole last axes, evenly spread, so all channels."""
    channels, width = (values.shape[-1], values.shape[-2]) if values.ndim > 1 else (1, 1)
    rows = values.reshape(-1, channels)
    step = max(-(-values.size // MOST_COUNTED), 1)
    # A step that shares a divisor with the width would always select the same columns.
    while math.gcd(step, width) > 1:
        step += 1
    return rows[::step]


def ends(values: NDArray[Any]) -> tuple[float, float]:
    """Return the lowest and highest value; NaN if any value is NaN."""
    flat = values.reshape(-1)
    starts = range(0, flat.size, _VALUES_BLOCK)
    bounds = np.empty((2, len(starts)), flat.dtype)

    def note(start: int) -> None:
        part = flat[start : start + _VALUES_BLOCK]
        bounds[:, start // _VALUES_BLOCK] = part.min(), part.max()

    for_each(note, starts)
    # Add zero to drop the sign of zero, which depends on the order of the values.
    return float(bounds[0].min()) + 0.0, float(bounds[1].max()) + 0.0


_LEVELS: Final = 256
# Number of ends on each side in the search for the least squared error.
_TRIED: Final = 256
ENTROPY_LEVELS: Final = 128
"""Number of levels on each side of a symmetric 8-bit range."""
# Distance between candidate ends, in bins.
_ENTROPY_STRIDE: Final = 8

Range = tuple[float, float]


def observed_range(
    values: ObservedValues, method: str, percentile: float, levels: int = ENTROPY_LEVELS
) -> Range:
    """Compute the range of at least one value, within the lowest and highest.

    Args:
        method: ``percentile``, ``entropy``, or ``mse``.
        percentile: the percentage of values that the method ``percentile`` keeps.
        levels: the number of levels for ``entropy``.
    """
    low, high = values.low, values.high
    histogram = values.histogram
    if histogram is not None and histogram.exponent is not None and low < high:
        if method == "percentile":
            bounds = percentile_range(histogram, percentile)
        elif method == "entropy":
            bounds = entropy_range(histogram, levels)
        else:
            bounds = least_squares_range(histogram)
        low, high = min(max(low, bounds[0]), high), max(min(high, bounds[1]), low)
    return float(np.float32(low)), float(np.float32(high))


def percentile_range(histogram: Histogram, percentile: float) -> Range:
    """Return the range with a percentage of the values; equal parts are cut off at both ends.

    Source: ``PercentileCalibrater`` of ONNX Runtime, asymmetric.
    """
    total = int(histogram.counts.sum())
    cut = int(total * ((100.0 - percentile) / 200.0))
    up = np.cumsum(histogram.counts)
    first = int(np.searchsorted(up, cut, side="right"))
    last = int(np.searchsorted(up, total - cut, side="left"))
    edges = histogram.edges()
    return float(edges[first]), float(edges[last + 1])


def least_squares_range(histogram: Histogram) -> Range:
    """Return the range with the least mean squared error of rounding and clipping together.

    The squared error of rounding is a twelfth of a squared step on average; that of clipping is the
    squared distance to the end. Values in the bin around zero count as exact, because the zero
    point is exact. Selects the minimum over a grid of ends. Source: the search of Banner et al.,
    "Post training 4-bit quantization of convolutional networks for rapid-deployment", 2019, over a
    histogram and with both ends free.
    """
    counts = histogram.counts.astype(np.float64)
    width = float(np.ldexp(1.0, histogram.exponent or 0))
    below, below_error = _clipped(counts[:BINS][::-1], width)
    above, above_error = _clipped(counts[BINS + 1 :], width)
    tried = np.linspace(0, BINS, _TRIED + 1).astype(np.int64)
    ends = tried * width
    inside = below.max() + above.max() - below[tried][:, None] - above[tried][None, :]
    steps = (ends[:, None] + ends[None, :]) / (_LEVELS - 1)
    error = inside * steps**2 / 12 + below_error[tried][:, None] + above_error[tried][None, :]
    error[0, 0] = np.inf
    low, high = np.unravel_index(int(error.argmin()), error.shape)
    return -float(ends[low]), float(ends[high])


def _clipped(counts: NDArray[Any], width: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the number of clipped values and their squared error, for each end of one side.

    Ends are at 0, 1, ... ``BINS`` widths. The counts start with bin 1, and each represents values
    in the middle of its bin.
    """
    there = np.concatenate([[0.0], counts])
    ends = np.arange(BINS + 1)
    beyond = [np.cumsum((there * (ends + 0.5) ** power)[::-1])[::-1] for power in (0, 1, 2)]
    number, first, second = beyond
    error = second - 2 * ends * first + ends**2 * number
    return number, np.maximum(error, 0) * width**2


def entropy_range(histogram: Histogram, levels: int = ENTROPY_LEVELS) -> Range:
    """Return the symmetric range that loses the least information about the distribution.

    For each end, the values beyond it are added to the last bins. The loss is the Kullback-Leibler
    divergence from that distribution to its quantization to ``levels`` levels, each spread evenly
    over the bins that are not empty. The candidate ends are every 8 bins, starting with one bin for
    each level. Source: Migacz, "8-bit inference with TensorRT", 2017, on magnitudes; the bin around
    zero counts as in NVIDIA's pytorch-quantization.
    """
    counts = histogram.counts
    magnitudes = counts[BINS:].astype(np.float64)
    magnitudes[1:] += counts[:BINS][::-1]
    # Zeros are exact in any range, and would outweigh everything else after a Relu.
    magnitudes[0] = magnitudes[1]
    ends = range(levels, BINS + 1, _ENTROPY_STRIDE)
    losses = [_divergence(magnitudes, end, levels) for end in ends]
    end = ends[int(np.argmin(losses))] * float(np.ldexp(1.0, histogram.exponent or 0))
    return -end, end


def _divergence(magnitudes: NDArray[Any], end: int, levels: int) -> float:
    inside = magnitudes[:end]
    reference = inside.copy()
    reference[-1] += magnitudes[end:].sum()
    level = np.arange(end) * levels // end
    filled = inside > 0
    sums = np.bincount(level, inside, levels)
    members = np.bincount(level, filled, levels)
    spread = np.where(filled, (sums / np.maximum(members, 1))[level], 0.0)
    total, spread_total = reference.sum(), spread.sum()
    if not total or not spread_total:
        return float("inf")
    p, q = reference / total, spread / spread_total
    if (q[p > 0] == 0).any():
        # Only outliers in the last bin: use the likelihood of a single value.
        q = np.maximum(q, 1 / spread_total)
    there = p > 0
    return float(np.sum(p[there] * np.log(p[there] / q[there])))


ChannelMethod: TypeAlias = Literal["min_max", "percentile", "entropy", "mse"]

USUAL_PERCENTILE: Final = 99.99

SHARES: Final = tuple(share / 40 for share in range(40, 15, -1))
"""Candidate shares of the widest range for the least squared error."""

# Channels with smaller weights count as zero, so that steps are normal numbers.
_TINY: Final = float(np.finfo(np.float32).tiny) * 256


def channel_steps(
    weights: NDArray[Any],
    axes: tuple[int, ...],
    method: ChannelMethod,
    most: int,
    percentile: float = USUAL_PERCENTILE,
) -> NDArray[np.float32]:
    """Compute the quantization step of the weights of each output channel.

    Args:
        weights: finite float32.
        axes: the axes of the output channels, counted from the last: -1.
        method: ``min_max`` covers every weight. ``percentile`` omits the largest magnitudes of each
            channel. ``entropy`` loses the least information about the distribution (see
            ``entropy_range``), with as many levels as there are steps; it covers every weight of a
            channel that has no more weights than levels. ``mse`` clips the largest weights if that
            reduces the channel's squared error: it selects the best of ``SHARES``, and the widest
            of equal ones. Source: Banner et al., "Post training 4-bit quantization of convolutional
            networks for rapid-deployment", 2019, by search instead of a distribution's formula.
        most: the highest quantized magnitude.
        percentile: the percentage of magnitudes that the method ``percentile`` keeps.

    Returns:
        Positive float32 in the weights' shape, with size 1 in all axes except channels; 1 for
        channels of zeros.
    """
    others = tuple(i for i in range(weights.ndim) if i - weights.ndim not in axes)
    largest = np.abs(weights).max(axis=others, keepdims=True, initial=0)
    if method in ("percentile", "entropy") and weights.size:
        limits = [
            _channel_limit(x, method, most + 1, percentile) for x in _channels(weights, others)
        ]
        largest = np.array(limits, np.float32).reshape(largest.shape)
    sizes = np.where(largest > _TINY, largest / most, 1).astype(np.float32)
    return _least_squares(weights, others, sizes, most) if method == "mse" else sizes


def float16_steps(steps: NDArray[Any]) -> NDArray[np.float32]:
    """Round positive steps to numbers of both bfloat16 and float16, but not to 0.

    LiteRT stores the steps of blocks in float16, and XNNPACK computes with bfloat16.
    """
    bits = np.ascontiguousarray(steps, np.float32).view(np.uint32)
    even = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    short = (even & np.uint32(0xFFFF0000)).view(np.float32)
    least = np.finfo(np.float16).smallest_subnormal
    return np.maximum(short.astype(np.float16), least).astype(np.float32)


def _channels(weights: NDArray[Any], others: tuple[int, ...]) -> NDArray[Any]:
    """Return the magnitudes of each channel: [channels, weights of each]."""
    magnitudes = np.moveaxis(np.abs(weights), others, range(-len(others), 0))
    rows: NDArray[Any] = magnitudes.reshape(
        -1, math.prod(magnitudes.shape[-len(others) :]) if others else 1
    )
    return rows


def _channel_limit(magnitudes: NDArray[Any], method: str, levels: int, percentile: float) -> float:
    """Return the largest magnitude in a channel's range, or the overall largest if it is tiny."""
    largest = float(magnitudes.max())
    if method == "percentile":
        cut = int(magnitudes.size * (100 - percentile) / 100)
        limit = float(np.partition(magnitudes, magnitudes.size - 1 - cut)[-1 - cut])
    elif magnitudes.size <= levels or largest <= _TINY:
        limit = largest
    else:
        values = ObservedValues(histogram=Histogram())
        values.add(magnitudes)
        limit = observed_range(values, method, percentile, levels)[1]
    return limit if limit > _TINY else largest


def _least_squares(
    weights: NDArray[Any], others: tuple[int, ...], sizes: NDArray[np.float32], most: int
) -> NDArray[np.float32]:
    """Scale each channel's step by its best share."""
    best, least = np.ones_like(sizes), np.full_like(sizes, np.inf)
    for share in SHARES:
        tried = sizes * np.float32(share)
        quantized = np.clip(np.rint(weights / tried), -most, most) * tried
        error = np.square(quantized - weights).sum(axis=others, keepdims=True)
        better = error < least
        best, least = np.where(better, np.float32(share), best), np.where(better, error, least)
    best_sizes: NDArray[np.float32] = sizes * best
    return best_sizes
