"""Sums of segments."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.ops.sparse.math import summed


def test_rows_of_a_segment_are_added() -> None:
    rows = np.int32([[1, 2], [3, 4], [5, 6], [7, 8]])
    found = summed(rows, np.array([0, 0, 2, 2]), 4)
    assert found.tolist() == [[4, 6], [0, 0], [12, 14], [0, 0]]
    assert found.dtype == np.int32


def test_the_first_segment_may_be_empty() -> None:
    assert summed(np.float32([1, 2]), np.array([1, 2]), 3).tolist() == [0, 1, 2]


def test_no_rows_make_zeros() -> None:
    found = summed(np.zeros((0, 2), np.float32), np.array([], np.int64), 3)
    assert found.tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_narrow_numbers_are_added_in_single_precision(kind: type) -> None:
    # One by one, 1 is lost beside the first number, which has no digit left for it.
    first = 2048 if kind is np.float16 else 256
    rows = np.array([first, 1, 1, 1, 1], kind)
    assert float(summed(rows, np.zeros(5, np.int64), 1)[0]) == first + 4


def test_narrow_integers_wrap_around() -> None:
    assert summed(np.int8([100, 100]), np.array([0, 0]), 1).tolist() == [-56]


def test_sums_beyond_all_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="passes"):
        summed(np.float32([1]), np.array([0]), 1 << 40)
