"""Names of calibration methods in range files."""

from __future__ import annotations

import pytest

from mobileprep.data.options import Method


@pytest.mark.parametrize(
    ("name", "text", "has_histogram"),
    [
        ("auto", "auto", True),
        ("min_max", "min_max", False),
        ("moving_average", "moving_average 0.9", False),
        ("percentile", "percentile 99.5", True),
        ("entropy", "entropy", True),
        ("mse", "mse", True),
    ],
)
def test_method_name_includes_only_its_own_parameter(
    name: str, text: str, has_histogram: bool
) -> None:
    method = Method(name, 99.5, 0.9)
    assert (str(method), method.has_histogram) == (text, has_histogram)
