"""Ranges of a graph's tensors, measured by running it on samples."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from mobileprep.calibration.methods import MOVING_AVERAGE, Method
from mobileprep.calibration.observation import Observation
from mobileprep.ir.refs import Edge
from mobileprep.numerics.observed_values import ObservedValues
from mobileprep.numerics.range_methods import observed_range

Ranges = dict[Edge, tuple[float, float]]


def ranges_of(observations: Iterable[Observation], method: Method) -> tuple[Ranges, int]:
    """The ranges that observations of consecutive samples come to, and how many samples they were.

    What the observations are cut into makes no difference: ends and histograms add up exactly, and
    moving averages go on from batch to batch in order.

    Args:
        observations: in the order of their samples.
        method: how ranges come of them.
    """
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
                averages[tensor] = _averaged(averages.get(tensor), ends, method.decay)
    if method.name == MOVING_AVERAGE:
        return averages, samples
    return {
        tensor: observed_range(seen, method.name, method.percentile)
        for tensor, seen in values.items()
        if seen.count
    }, samples


def _averaged(
    before: tuple[float, float] | None, ends: tuple[float, float], decay: float
) -> tuple[float, float]:
    """The averages of the least and of the greatest value after one more batch.

    Source: ``assign_moving_average`` of TensorFlow, in float32 as there, but begun with the first
    batch's ends.
    """
    if before is None:
        return ends
    share = np.float32(1) - np.float32(decay)
    low, high = (
        np.float32(old) - (np.float32(old) - np.float32(new)) * share
        for old, new in zip(before, ends, strict=True)
    )
    return float(low), float(high)
