"""Bounds on the number of backtracking paths, computed by hand for short patterns."""

from __future__ import annotations

import math

import pytest

from mobileprep.ops.numerics.regular_expressions import doublings


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("ab", 1),
        ("a?", 2),
        ("a?b?", 4),
        # one path for the first and two for the second
        ("a|b?", 3),
        ("a?|b?|c", 5),
        ("(a|b?)c?", 6),
        # 0, 1, 2, or 3 times
        ("a{0,3}", 4),
        ("a{2}", 1),
        ("a{2,4}", 3),
        # 1, 2, or 3 times, each with two paths
        ("(a?){1,3}", 3 * 2**3),
    ],
)
def test_paths_at_one_position(pattern: str, paths: int) -> None:
    assert doublings(pattern, 0) == pytest.approx(math.log2(paths))


@pytest.mark.parametrize(
    ("pattern", "paths"),
    [
        ("a", 1),
        # 0 to 7 times
        ("a*", 8),
        ("a+", 7),
        ("a*b*", 64),
        ("a{2,}", 8),
        ("(a*)*", 8 * 8**7),
    ],
)
def test_paths_on_seven_characters(pattern: str, paths: int) -> None:
    """A search starts at each of 8 positions."""
    assert doublings(pattern, 7) == pytest.approx(math.log2(8 * paths))
