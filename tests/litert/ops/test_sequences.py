"""Segments whose numbers have gaps, and numbers of int64."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.litert.one_op import check, numbers


@pytest.mark.parametrize("ids", [[0, 0, 1, 3], [1, 1, 2, 3], [4, 4, 4, 4]])
@pytest.mark.parametrize("open_sizes", [False, True])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_constant_segments_with_gaps(ids: list[int], open_sizes: bool, dtype: type) -> None:
    inputs = [numbers(4, 6, 3), np.array(ids, dtype)]
    ran = check("SegmentSum", inputs, constant=[1], open_sizes=open_sizes)
    assert ran == ["UNSORTED_SEGMENT_SUM"]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_segments_without_gaps(dtype: type) -> None:
    inputs = [numbers(4, 3), np.array([0, 0, 1, 2], dtype)]
    assert check("SegmentSum", inputs, constant=[1]) == ["SEGMENT_SUM"]
    assert check("SegmentSum", inputs)[-1] == "SEGMENT_SUM"


@pytest.mark.parametrize("ids", [[0, 2, 1, 2], [-1, 0, 0, 1]])
def test_segments_that_no_kernel_takes_are_malformed(ids: list[int]) -> None:
    with pytest.raises(InvalidGraphError, match="'y'"):
        check("SegmentSum", [numbers(4, 3), np.int32(ids)], constant=[1])


@pytest.mark.parametrize("kind", ["Sum", "Prod", "Max", "Min"])
def test_unsorted_segments_of_int64(kind: str) -> None:
    inputs = [numbers(4, 3), np.array([1, 0, 3, 1]), np.int64(4)]
    code = f"UNSORTED_SEGMENT_{kind.upper()}"
    assert check(f"UnsortedSegment{kind}", inputs, constant=[1, 2]) == [code]
    assert check(f"UnsortedSegment{kind}", inputs)[-1] == code


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("boundaries", [[], [0.0], [-2.5, 0.0, 1.0, 1.0, 3.0]])
def test_buckets(dtype: type, boundaries: list[float]) -> None:
    x = np.array([[-9, -2, 0, 1], [2, 3, 4, 100]]).astype(dtype)
    assert check("Bucketize", [x], boundaries=boundaries) == ["BUCKETIZE"]


def test_buckets_of_what_is_no_number() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    check("Bucketize", [x], boundaries=[-1.0, 0.0, 2.0])
