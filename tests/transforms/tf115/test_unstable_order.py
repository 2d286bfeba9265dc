"""The order of equals after ``std::sort``, as libstdc++ left it."""

from __future__ import annotations

import pytest

from mobileprep.transforms.tf115.node_hashes import std_sorted


def test_a_short_run_keeps_the_order_of_equals() -> None:
    items = list(zip("abcdefgh", [2, 1, 2, 1, 3, 3, 1, 2], strict=True))
    assert std_sorted(items, lambda i: i[1]) == sorted(items, key=lambda i: i[1])


@pytest.mark.parametrize(
    ("keys", "positions"),
    [
        # What a program of g++ 12 printed for these keys, descending.
        (
            [1, 1, 1, 2, 1, 3, 1, 1, 2, 1, 1, 1, 4, 1, 1, 2, 1, 1, 1, 9],
            [19, 12, 5, 3, 15, 8, 10, 18, 17, 16, 14, 13, 11, 0, 9, 7, 6, 4, 2, 1],
        ),
        ([1] * 18, [9, 17, 16, 15, 14, 13, 12, 11, 10, 0, 8, 7, 6, 5, 4, 3, 2, 1]),
    ],
)
def test_a_longer_one_does_not(keys: list[int], positions: list[int]) -> None:
    assert std_sorted(range(len(keys)), lambda i: -keys[i]) == positions


def test_sorted_and_reversed_runs_come_out_sorted() -> None:
    for items in (range(500), range(500, 0, -1)):
        assert std_sorted(items, lambda i: i) == sorted(items)
