"""Segment sums."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.ops.sparse.sparse import summed


def test_segment_sum() -> None:
    rows = np.int32([[1, 2], [3, 4], [5, 6], [7, 8]])
    result = summed(rows, np.array([0, 0, 2, 2]), 4)
    assert result.tolist() == [[4, 6], [0, 0], [12, 14], [0, 0]]
    assert result.dtype == np.int32


def test_first_segment_can_be_empty() -> None:
    assert summed(np.float32([1, 2]), np.array([1, 2]), 3).tolist() == [0, 1, 2]


def test_sum_of_no_rows_is_zero() -> None:
    result = summed(np.zeros((0, 2), np.float32), np.array([], np.int64), 3)
    assert result.tolist() == [[0, 0]] * 3


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_summed_in_float32(kind: type) -> None:
    # In the narrow type, adding 1 to the first number would not change it.
    first = 2048 if kind is np.float16 else 256
    rows = np.array([first, 1, 1, 1, 1], kind)
    assert float(summed(rows, np.zeros(5, np.int64), 1)[0]) == first + 4


def test_int8_sum_wraps() -> None:
    assert summed(np.int8([100, 100]), np.array([0, 0]), 1).tolist() == [-56]


def test_huge_segment_count_is_refused() -> None:
    with pytest.raises(ValueError, match="passes"):
        summed(np.float32([1]), np.array([0]), 1 << 40)
