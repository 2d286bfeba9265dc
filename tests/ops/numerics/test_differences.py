"""Differences between two results."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mobileprep.errors import AccuracyError
from mobileprep.ops.numerics.differences import (
    difference,
    largest_difference,
    not_finite,
    shown_difference,
)


@pytest.mark.parametrize(
    ("expected", "result", "difference"),
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
def test_largest_difference(expected: list, result: list, difference: float) -> None:
    assert largest_difference(np.array(expected), np.array(result), "out") == difference


def test_difference_of_unsigned_integers() -> None:
    a, b = np.array([0], np.uint8), np.array([255], np.uint8)
    assert largest_difference(a, b, "out") == 255


def test_difference_of_strings_is_a_share() -> None:
    a = np.array([b"a", b"b", b"c", b"d"], object)
    b = np.array([b"a", b"x", b"c", b"d"], object)
    assert largest_difference(a, b, "out") == 0.25


def test_different_shapes_are_an_error() -> None:
    with pytest.raises(AccuracyError, match="has the shape"):
        largest_difference(np.zeros(2), np.zeros((2, 1)), "out")


def test_difference_is_shown_with_two_digits() -> None:
    assert shown_difference(0.0123456) == 0.012
    assert shown_difference(0.0) == 0.0


@pytest.mark.parametrize(
    ("expected", "result", "is_source_lost"),
    [
        ([math.nan, 1], [0, 1], True),
        ([math.nan, 1], [0, math.inf], False),
        ([2, 1], [2, math.nan], False),
        ([math.inf, 1], [-math.inf, 1], True),
    ],
)
def test_side_with_nan_or_infinity_is_named(
    expected: list, result: list, is_source_lost: bool
) -> None:
    gap = difference("y", [np.array(expected, float)], [np.array(result, float)])
    assert (math.isinf(gap.share), gap.is_source_lost) == (True, is_source_lost)
    fed = {"keep": np.float32(0).reshape(()), "x": np.array([[1, -2.5]])}
    text = not_finite(gap, "after optimize", [fed], "").message
    assert ("the samples are unusable" in text) == is_source_lost
    assert text.endswith("fed: keep [] of 0, x [1, 2] from -2.5 to 1") == is_source_lost
    assert ("after optimize the output 'y' is NaN or infinite" in text) != is_source_lost
