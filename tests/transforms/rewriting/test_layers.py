"""Constants that are combined with a layer's output as one value a channel."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.transforms.rewriting.layers import along_axis

CHANNELS = [3.0, 4.0]


@pytest.mark.parametrize(
    ("shape", "axis", "rank"),
    [
        ((2,), -1, None),
        ((1, 2), -1, 4),
        ((1, 1, 1, 2), -1, 4),
        ((2, 1, 1), -3, 4),
        ((1, 2, 1, 1), -3, 4),
    ],
)
def test_values_along_the_channels(shape: tuple[int, ...], axis: int, rank: int | None) -> None:
    found = along_axis(np.reshape(CHANNELS, shape), 2, axis, rank)
    assert found is not None
    assert found.tolist() == CHANNELS


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_value_is_that_of_every_channel(shape: tuple[int, ...]) -> None:
    found = along_axis(np.full(shape, 7.0), 2, -1, 4)
    assert found is not None
    assert found.tolist() == [7, 7]


@pytest.mark.parametrize(
    ("shape", "axis", "rank"),
    [
        # Along the last axis where the channels are the third from there, and the other way round.
        ((2,), -3, 4),
        ((2, 1, 1), -1, 4),
        # More axes than the tensor has, or than are known to be there.
        ((1, 1, 1, 1, 2), -1, 4),
        ((1, 2), -1, None),
        # Not as many values as channels.
        ((1, 2, 2), -1, 4),
    ],
)
def test_constants_not_along_channels_are_not_merged(
    shape: tuple[int, ...], axis: int, rank: int | None
) -> None:
    assert along_axis(np.ones(shape), 2, axis, rank) is None
    assert along_axis(np.ones(3), 2, axis, rank) is None
