"""Bounds on the ways that a backtracking engine tries, counted by hand for short patterns."""

from __future__ import annotations

import math

import pytest

from mobileprep.ops.numerics.regular_expressions import doublings


@pytest.mark.parametrize(
    ("pattern", "ways"),
    [
        ("ab", 1),
        ("a?", 2),
        ("a?b?", 4),
        # one way for the one and two for the other
        ("a|b?", 3),
        ("a?|b?|c", 5),
        ("(a|b?)c?", 6),
        # 0, 1, 2 or 3 times
        ("a{0,3}", 4),
        ("a{2}", 1),
        ("a{2,4}", 3),
        # 1, 2 or 3 times, each time in two ways
        ("(a?){1,3}", 3 * 2**3),
    ],
)
def test_ways_at_one_place(pattern: str, ways: int) -> None:
    assert doublings(pattern, 0) == pytest.approx(math.log2(ways))


@pytest.mark.parametrize(
    ("pattern", "ways"),
    [
        ("a", 1),
        # as often as there are characters, or not at all
        ("a*", 8),
        ("a+", 7),
        ("a*b*", 64),
        ("a{2,}", 8),
        ("(a*)*", 8 * 8**7),
    ],
)
def test_ways_on_seven_characters(pattern: str, ways: int) -> None:
    """A search begins at each of 8 places."""
    assert doublings(pattern, 7) == pytest.approx(math.log2(8 * ways))
