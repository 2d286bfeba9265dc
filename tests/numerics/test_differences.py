"""How far apart two results are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mobileprep.errors import AccuracyError
from mobileprep.numerics.differences import largest_difference, shown_difference


@pytest.mark.parametrize(
    ("expected", "found", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.5),
        ([1.0, math.nan], [1.5, math.nan], 0.5),
        ([math.inf, 1.0], [math.inf, 1.0], 0.0),
        ([1.0], [math.nan], math.inf),
        ([1.0], [math.inf], math.inf),
        ([math.inf], [-math.inf], math.inf),
        ([], [], 0.0),
        ([1 + 1j], [1 + 2j], 1.0),
    ],
)
def test_the_largest_difference(expected: list, found: list, difference: float) -> None:
    assert largest_difference(np.array(expected), np.array(found), "out") == difference


def test_integers_do_not_wrap_around() -> None:
    a, b = np.array([0], np.uint8), np.array([255], np.uint8)
    assert largest_difference(a, b, "out") == 255


def test_text_differs_by_its_share() -> None:
    a = np.array([b"a", b"b", b"c", b"d"], object)
    b = np.array([b"a", b"x", b"c", b"d"], object)
    assert largest_difference(a, b, "out") == 0.25


def test_another_shape_is_an_error() -> None:
    with pytest.raises(AccuracyError, match="has the shape"):
        largest_difference(np.zeros(2), np.zeros((2, 1)), "out")


def test_a_difference_is_shown_to_two_digits() -> None:
    assert shown_difference(0.0123456) == 0.012
    assert shown_difference(0.0) == 0.0
