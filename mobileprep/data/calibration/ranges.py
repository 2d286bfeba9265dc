"""Derive ranges from observations, and check whether range files are stale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from mobileprep.data.calibration.observation import Observation
from mobileprep.data.options import MOVING_AVERAGE, Method
from mobileprep.errors import AccuracyError
from mobileprep.formats.range_file import RangeFile
from mobileprep.graph.refs import Edge
from mobileprep.ops.numerics.ranges import ObservedValues, observed_range

Ranges = dict[Edge, tuple[float, float]]


def ranges_of(observations: Iterable[Observation], method: Method) -> tuple[Ranges, int]:
    """Return the ranges from observations of consecutive samples, and the number of samples.

    The result does not depend on how the samples are split: extremes and histograms add up exactly,
    and moving averages continue from batch to batch in order.
    """
    total = merged(observations, method.decay)
    if method.name == MOVING_AVERAGE:
        return total.averages, total.samples
    return {
        tensor: observed_range(seen, method.name, method.percentile)
        for tensor, seen in total.values.items()
        if seen.count
    }, total.samples


class Merged(Struct, frozen=True):
    """The observations of all samples.

    Args:
        values: the values of each tensor.
        averages: moving averages of the batches' minimum and maximum.
        samples: the number of samples.
    """

    values: dict[Edge, ObservedValues]
    averages: Ranges
    samples: int


def merged(observations: Iterable[Observation], decay: float = 0.0) -> Merged:
    """Merge observations of consecutive samples."""
    values: dict[Edge, ObservedValues] = {}
    averages: Ranges = {}
    samples = 0
    for observation in observations:
        samples += observation.samples
        for tensor, seen in observation.values.items():
            if tensor in values:
                values[tensor].merge(seen)
            else:
                values[tensor] = seen
        for tensor, batches in observation.batches.items():
            for ends in batches:
                averages[tensor] = _averaged(averages.get(tensor), ends, decay)
    return Merged(values, averages, samples)


def _averaged(
    before: tuple[float, float] | None, ends: tuple[float, float], decay: float
) -> tuple[float, float]:
    """Update the moving averages of the minimum and maximum with one batch.

    Source: ``assign_moving_average`` of TensorFlow, in float32 as there, but initialized with the
    first batch's extremes.
    """
    if before is None:
        return ends
    share = np.float32(1) - np.float32(decay)
    low, high = (
        np.float32(old) - (np.float32(old) - np.float32(new)) * share
        for old, new in zip(before, ends, strict=True)
    )
    return float(low), float(high)


_HINT: Final = "run 'mobileprep calibrate' to measure again, and check in the range file"
_SHOWN: Final = 20


def check_fresh(
    ranges: RangeFile,
    digests: Mapping[str, str],
    method: Method,
    samples: int | None,
    data: str | None,
    where: str,
) -> None:
    """Raise ``AccuracyError`` if a range file is stale for this graph, method, or data."""
    _refuse([*_as_a_whole(ranges, method, samples, data), *_tensors(ranges, digests)], where)


def check_tensors(ranges: RangeFile, digests: Mapping[str, str], where: str) -> None:
    """Raise ``AccuracyError`` if a range file was measured on another graph."""
    _refuse([*_tensors(ranges, digests)], where)


def _refuse(stale: Sequence[str], where: str) -> None:
    if not stale:
        return
    more = [f"... and {len(stale) - _SHOWN} more"] if len(stale) > _SHOWN else []
    lines = "\n  ".join([*stale[:_SHOWN], *more])
    message = f"the range file is stale:\n  {lines}"
    raise AccuracyError(message, _HINT, where)


def _as_a_whole(
    ranges: RangeFile, method: Method, samples: int | None, data: str | None
) -> Iterator[str]:
    if ranges.method != str(method):
        yield f"it was measured with {ranges.method or 'another method'}, not {method}"
    if data is not None and ranges.data != data:
        yield "it was measured on other data"
    elif samples is not None and ranges.samples > samples:
        yield f"it was measured on {ranges.samples} samples, and {samples} are asked"


def _tensors(ranges: RangeFile, digests: Mapping[str, str]) -> Iterator[str]:
    unseen = frozenset(ranges.unseen)
    for tensor, digest in digests.items():
        entry = ranges.tensors.get(tensor)
        if entry is None:
            if tensor not in unseen:
                yield f"{tensor}: it has no range"
        elif entry.graph != digest:
            yield f"{tensor}: what computes it has changed"
