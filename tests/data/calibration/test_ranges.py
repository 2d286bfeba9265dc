"""Ranges from observations."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.data.calibration.observation import Observation
from mobileprep.data.calibration.ranges import ranges_of
from mobileprep.data.options import Method

TENSOR = ("x", 0)


def test_empty_observation_has_no_ranges() -> None:
    assert ranges_of([Observation()], Method("min_max", 99.0, 0.9)) == ({}, 0)


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_moving_averages_continue_across_observations(cut: int) -> None:
    ends = [(0.0, 8.0), (4.0, 4.0), (8.0, 0.0)]
    observations = [
        Observation(batches={TENSOR: ends[at : at + cut]}, samples=len(ends[at : at + cut]))
        for at in range(0, len(ends), cut)
    ]
    ranges, samples = ranges_of(observations, Method("moving_average", 0, 0.5))
    assert (ranges, samples) == ({TENSOR: (5.0, 3.0)}, 3)


def test_averages_use_float32() -> None:
    observations = Observation(batches={TENSOR: [(0.0, 1.0), (0.0, 2.0)]}, samples=2)
    ranges, _ = ranges_of([observations], Method("moving_average", 0, 0.9))
    share = np.float32(1) - np.float32(0.9)
    assert ranges[TENSOR] == (0.0, float(np.float32(1) + share))
