"""Methods of calibration as range files name them."""

from __future__ import annotations

import pytest

from mobileprep.data.options import Method


@pytest.mark.parametrize(
    ("name", "told", "has_histogram"),
    [
        ("min_max", "min_max", False),
        ("moving_average", "moving_average 0.9", False),
        ("percentile", "percentile 99.5", True),
        ("entropy", "entropy", True),
        ("mse", "mse", True),
    ],
)
def test_a_method_names_the_number_that_it_works_by_alone(
    name: str, told: str, has_histogram: bool
) -> None:
    method = Method(name, 99.5, 0.9)
    assert (str(method), method.has_histogram) == (told, has_histogram)
