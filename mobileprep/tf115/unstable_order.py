"""The order in which C++'s ``std::sort`` leaves equal elements, which is not the one they had."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

Item = TypeVar("Item")

# Runs of this length are left to the insertion at the end, which keeps the order of equals.
_SHORT: Final = 16


def std_sorted(items: Iterable[Item], key: Callable[[Item], int]) -> list[Item]:
    """Items by ascending key, equals as libstdc++ 4 and newer leaves them.

    Where its introsort would turn to a heap, which needs input made for that, equals keep the
    order that they have by then.

    Args:
        items: in the order that they are given to ``std::sort``.
        key: what is compared.

    Source: ``std::__introsort_loop`` of libstdc++, with which TensorFlow's wheels are built.
    """
    order = list(items)
    keys = [key(item) for item in order]
    pairs = list(zip(keys, order, strict=True))
    waiting = [(0, len(pairs), 2 * max(len(pairs).bit_length() - 1, 0))]
    while waiting:
        first, last, depth = waiting.pop()
        if last - first > _SHORT and depth:
            cut = _partition(pairs, first, last)
            waiting += [(first, cut, depth - 1), (cut, last, depth - 1)]
    return [item for _, item in sorted(pairs, key=lambda pair: pair[0])]


def _partition(pairs: list[tuple[int, Item]], first: int, last: int) -> int:
    """Split a run at the median of its second, middle and last element; where the halves meet."""
    candidates = (first + 1, first + (last - first) // 2, last - 1)
    median = _median(pairs, *candidates)
    _swap(pairs, first, median)
    pivot = pairs[first][0]
    left, right = first + 1, last
    while True:
        while pairs[left][0] < pivot:
            left += 1
        right -= 1
        while pivot < pairs[right][0]:
            right -= 1
        if left >= right:
            return left
        _swap(pairs, left, right)
        left += 1


def _median(pairs: list[tuple[int, Item]], a: int, b: int, c: int) -> int:
    """Which of three is in the middle; of equals the one that ``__move_median_to_first`` takes."""
    x, y, z = pairs[a][0], pairs[b][0], pairs[c][0]
    if x < y:
        return b if y < z else c if x < z else a
    return a if x < z else c if y < z else b


def _swap(pairs: list[tuple[int, Item]], a: int, b: int) -> None:
    pairs[a], pairs[b] = pairs[b], pairs[a]
