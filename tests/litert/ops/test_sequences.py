"""Bucketize and CTC decoding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.litert.one_op import check, numbers


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("boundaries", [[], [0.0], [-2.5, 0.0, 1.0, 1.0, 3.0]])
def test_buckets(dtype: type, boundaries: list[float]) -> None:
    x = np.array([[-9, -2, 0, 1], [2, 3, 4, 100]]).astype(dtype)
    assert check("Bucketize", [x], boundaries=boundaries) == ["BUCKETIZE"]


def test_buckets_of_nan_and_infinity() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    check("Bucketize", [x], boundaries=[-1.0, 0.0, 2.0])


@pytest.mark.parametrize("open_sizes", [0, 1, 2])
@pytest.mark.parametrize("is_merged", [False, True])
@pytest.mark.parametrize("blank", [-1, 1])
def test_greedy_decoding(blank: int, is_merged: bool, open_sizes: int) -> None:
    lengths = np.int32([12, 7, 1, 9])
    options = {"blank_index": blank, "merge_repeated": is_merged, "open_sizes": open_sizes}
    check("CTCGreedyDecoder", [numbers(12, 4, 3), lengths], outputs=4, **options)
