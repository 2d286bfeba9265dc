"""Ranges from observations, whatever these are cut into."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.data.calibration.observation import Observation
from mobileprep.data.calibration.ranges import ranges_of
from mobileprep.data.options import Method

TENSOR = ("x", 0)


def test_nothing_observed_has_no_range() -> None:
    assert ranges_of([Observation()], Method("min_max", 99.0, 0.9)) == ({}, 0)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_moving_averages_go_on_from_batch_to_batch(cut: int) -> None:
    """0, 8 then 4, 4 then 8, 0: a half of each batch, begun with the first."""
    ends = [(0.0, 8.0), (4.0, 4.0), (8.0, 0.0)]
    seen = [
        Observation(batches={TENSOR: ends[at : at + cut]}, samples=len(ends[at : at + cut]))
        for at in range(0, len(ends), cut)
    ]
    ranges, samples = ranges_of(seen, Method("moving_average", 0, 0.5))
    assert (ranges, samples) == ({TENSOR: (5.0, 3.0)}, 3)


def test_averages_are_in_float32_as_in_tensorflow() -> None:
    seen = Observation(batches={TENSOR: [(0.0, 1.0), (0.0, 2.0)]}, samples=2)
    ranges, _ = ranges_of([seen], Method("moving_average", 0, 0.9))
    share = np.float32(1) - np.float32(0.9)
    assert ranges[TENSOR] == (0.0, float(np.float32(1) + share))
