"""Buckets."""

from __future__ import annotations

import numpy as np
import pytest

from tests.litert.one_op import check


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("boundaries", [[], [0.0], [-2.5, 0.0, 1.0, 1.0, 3.0]])
def test_buckets(dtype: type, boundaries: list[float]) -> None:
    x = np.array([[-9, -2, 0, 1], [2, 3, 4, 100]]).astype(dtype)
    assert check("Bucketize", [x], boundaries=boundaries) == ["BUCKETIZE"]


def test_buckets_of_what_is_no_number() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    check("Bucketize", [x], boundaries=[-1.0, 0.0, 2.0])
