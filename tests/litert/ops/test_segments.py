"""Segment reductions, counts, unique values, partitions, and stitching."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.litert.one_op import check, integers, numbers


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
def test_unsorted_segment_ids_are_invalid(ids: list[int]) -> None:
    with pytest.raises(InvalidGraphError, match="'y'"):
        check("SegmentSum", [numbers(4, 3), np.int32(ids)], constant=[1])


@pytest.mark.parametrize("kind", ["Sum", "Prod", "Max", "Min"])
def test_unsorted_segments_of_int64(kind: str) -> None:
    inputs = [numbers(4, 3), np.array([1, 0, 3, 1]), np.int64(4)]
    code = f"UNSORTED_SEGMENT_{kind.upper()}"
    assert check(f"UnsortedSegment{kind}", inputs, constant=[1, 2]) == [code]
    assert check(f"UnsortedSegment{kind}", inputs)[-1] == code


@pytest.mark.parametrize("ids", [[0, 0, 1, 2], [1, 1, 4, 4]])
@pytest.mark.parametrize("constant", [[], [1]])
@pytest.mark.parametrize("kind", ["SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd"])
def test_segment_ops(kind: str, ids: list[int], constant: list[int]) -> None:
    code = f"UNSORTED_SEGMENT_{kind.removeprefix('Segment').upper().replace('MEAN', 'SUM')}"
    assert code in check(kind, [numbers(4, 3, 2), np.int64(ids)], constant=constant)
    assert code in check(kind, [numbers(4, 3), np.int32(ids)], constant=constant, open_sizes=1)


@pytest.mark.parametrize("kind", ["SegmentMax", "SegmentMin", "SegmentProd"])
def test_segments_of_integers(kind: str) -> None:
    check(kind, [integers(4, 3), np.int32([0, 2, 2, 3])])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("open_sizes", [0, 1])
@pytest.mark.parametrize("kind", ["Sum", "Mean", "SqrtN"])
def test_sparse_segments(kind: str, open_sizes: int, dtype: type) -> None:
    inputs = [numbers(5, 2, 3), np.array([4, 0, 0, 2], dtype), np.array([0, 0, 3, 3], dtype)]
    ran = check(f"SparseSegment{kind}", inputs, open_sizes=open_sizes)
    assert {"GATHER", "UNSORTED_SEGMENT_SUM"} <= set(ran)
    counted = [*inputs, np.array(6, dtype)]
    check(f"SparseSegment{kind}WithNumSegments", counted, constant=[3], open_sizes=open_sizes)
    check(f"SparseSegment{kind}WithNumSegments", counted, open_sizes=open_sizes)


def test_sparse_sums_of_integers() -> None:
    check("SparseSegmentSum", [integers(5, 2), np.int32([4, 0, 2]), np.int32([0, 1, 1])])


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize("shape", [(9,), (3, 4)])
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.int64])
def test_dense_bincount(dtype: type, shape: tuple[int, ...], is_binary: bool) -> None:
    values, none = integers(*shape, low=0, high=7), np.zeros(0, dtype)
    options = {"binary_output": is_binary}
    check("DenseBincount", [values, np.int32(5), none], constant=[1, 2], **options)
    check("DenseBincount", [values, np.int32(5), none], constant=[2], **options)
    if dtype is not np.int64:
        weights = integers(*shape).astype(dtype)
        check("DenseBincount", [values, np.int32(5), weights], constant=[1], **options)


def test_dense_bincount_of_unknown_length() -> None:
    values = [integers(9, low=0, high=7), np.int32(5), np.zeros(0, np.float32)]
    check("DenseBincount", values, constant=[1, 2], open_sizes=1)


@pytest.mark.parametrize("out_idx", [DType.INT32, DType.INT64])
@pytest.mark.parametrize("open_sizes", [0, 1])
def test_unique_with_counts(out_idx: DType, open_sizes: int) -> None:
    x = np.float32([3, 1, 3, 3, 2, 1])
    options = {"open_sizes": open_sizes, "out_idx": out_idx}
    check("UniqueWithCounts", [x], outputs=3, **options)
    for axes in ([], [0]):
        check("UniqueV2", [x, np.int32(axes)], outputs=2, constant=[1], **options)
        check("UniqueWithCountsV2", [x, np.int32(axes)], outputs=3, constant=[1], **options)


def test_unique_rows_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="slices along an axis"):
        check("UniqueV2", [numbers(3, 2), np.int32([0])], outputs=2, constant=[1])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("open_sizes", [0, 1])
def test_invert_permutation(dtype: type, open_sizes: int) -> None:
    check("InvertPermutation", [np.array([3, 0, 2, 1], dtype)], open_sizes=open_sizes)


@pytest.mark.parametrize("open_sizes", [0, 1])
def test_dynamic_partition(open_sizes: int) -> None:
    options = {"outputs": 3, "open_sizes": open_sizes, "num_partitions": 3}
    check("DynamicPartition", [numbers(4, 3), np.int32([2, 0, 2, 2])], **options)
    check("DynamicPartition", [numbers(2, 2, 3), np.int32([[2, 0], [1, 2]])], **options)


@pytest.mark.parametrize("constant", [[], [0, 1]])
def test_dynamic_stitch_keeps_the_last_duplicate(constant: list[int]) -> None:
    indices = [np.int32([3, 0]), np.int32([[1, 2], [0, 3]])]
    rows = [numbers(2, 3), numbers(2, 2, 3, seed=5)]
    check("DynamicStitch", [*indices, *rows], constant=constant, N=2)
