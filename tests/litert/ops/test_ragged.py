"""Ragged tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.tensor import Array
from tests.litert.one_op import check, numbers


@pytest.mark.parametrize("open_sizes", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("kind", [DType.INT32, DType.INT64])
def test_ranges(kind: DType, dtype: type, open_sizes: int) -> None:
    starts, limits, deltas = np.array([[0, 3, 5, -2, 1], [7, 3, -2, 9, 2], [2, 1, -3, 4, 1]], dtype)
    options = {"Tsplits": kind, "outputs": 2, "open_sizes": open_sizes}
    check("RaggedRange", [starts, limits, deltas], **options)
    check("RaggedRange", [dtype(1), limits + 4, dtype(2)], constant=[0, 2], **options)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("shape", [(9,), (9, 2)])
def test_ragged_gather(shape: tuple[int, ...], dtype: type) -> None:
    splits, indices = np.array([0, 2, 2, 5, 9], dtype), np.array([3, 0, 0, 1, 2], dtype)
    check("RaggedGather", [splits, numbers(*shape), indices], outputs=2, OUTPUT_RAGGED_RANK=1)
    outer = np.array([0, 1, 4], dtype)
    inputs = [outer, splits, numbers(*shape), np.array([1, 1, 0], dtype)]
    check("RaggedGather", inputs, outputs=3, OUTPUT_RAGGED_RANK=2, PARAMS_RAGGED_RANK=2)


def test_ragged_gather_by_a_matrix_is_refused() -> None:
    inputs = [np.int32([0, 2, 4]), numbers(4), np.int32([[1], [0]])]
    with pytest.raises(UnsupportedError, match="indices"):
        check("RaggedGather", inputs, outputs=3, OUTPUT_RAGGED_RANK=2)


def check_dense(
    shape: Any, values: Array, default: Any, kinds: list[bytes], *partitions: Array
) -> None:
    inputs = [np.asarray(shape, np.int32), values, np.asarray(default, values.dtype), *partitions]
    types = attr.AttrValue("list(string)", tuple(kinds))
    check("RaggedTensorToTensor", inputs, constant=[0, 2], tolerance=0, row_partition_types=types)


SPLITS, ROW_IDS, FIRST = b"ROW_SPLITS", b"VALUE_ROWIDS", b"FIRST_DIM_SIZE"


@pytest.mark.parametrize("shape", [-1, [-1, -1], [3, 2], [6, 5]])
def test_ragged_to_dense(shape: Any) -> None:
    values = np.arange(1, 10).astype(np.float32)
    check_dense(shape, values, 7, [SPLITS], np.int32([0, 2, 2, 5, 9]))
    ids = np.int64([0, 0, 2, 2, 2, 3, 3, 3, 3])
    check_dense(shape, values, 7, [FIRST, ROW_IDS], np.int64(5), ids)


@pytest.mark.parametrize("default", [0, [1, 2]])
def test_nested_ragged_to_dense(default: Any) -> None:
    values = np.arange(18).reshape(9, 2).astype(np.float32)
    splits = [np.int32([0, 1, 1, 4]), np.int32([0, 2, 2, 5, 9])]
    check_dense(-1, values, default, [SPLITS, SPLITS], *splits)
    check_dense([2, -1, 3, 2], values, default, [SPLITS, SPLITS], *splits)
