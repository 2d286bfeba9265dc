"""RaggedRange, RaggedGather, and RaggedTensorToSparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run, run_all
from tests.ops.strings.test_conversion import texts

RANK_1 = {"PARAMS_RAGGED_RANK": 1, "OUTPUT_RAGGED_RANK": 1}
RANK_3 = {"PARAMS_RAGGED_RANK": 2, "OUTPUT_RAGGED_RANK": 3}

OP_CASES = [
    unlike(case("RaggedRange", [(3,), (3,), (3,)], [(-1,), (-1,)], None)),
    case("RaggedGather", [(5,), (9, 4), (3,)], [(-1,), (-1, 4)], **RANK_1),
    case("RaggedGather", [(5,), (7,), None, (3, 2)], [(-1,), (-1,), (-1,), None], **RANK_3),
    refused("RaggedGather", [(5,), (9, 4), (3, 2)], **RANK_1),
    refused("RaggedGather", [(5, 1), (9, 4), (3,)], **RANK_1),
    refused("RaggedGather", [(5,), (), (3,)], **RANK_1),
    unlike(case("RaggedTensorToSparse", [(5,), (9, 4)], [(-1, 3), (-1,), (3,)])),
    unlike(case("RaggedTensorToSparse", [(5,), (7,), (9,)], [(-1, 3), (-1,), (3,)])),
    case("RaggedTensorToSparse", [(5,), None], [(-1, -1), (-1,), (-1,)]),
    case("RaggedGather", [(5,), (9,), (3,)], [(-1,), (-1,)], **RANK_1),
]


def test_range_of_integers() -> None:
    splits, numbers = run_all("RaggedRange", i32(2, 5, 8), i32(3, 5, 12), i32(1))
    assert (splits.tolist(), numbers.tolist()) == ([0, 1, 1, 5], [2, 8, 9, 10, 11])
    assert splits.dtype == np.int64
    splits, numbers = run_all("RaggedRange", i32(5), i32(0, 6, 9), i32(-2, -1, 2))
    assert (splits.tolist(), numbers.tolist()) == ([0, 3, 3, 5], [5, 3, 1, 5, 7])


def test_range_of_floats() -> None:
    splits, numbers = run_all("RaggedRange", f32(0, 1), f32(1, -0.5), f32(0.25, -0.5))
    assert splits.tolist() == [0, 4, 7]
    assert numbers.tolist() == [0, 0.25, 0.5, 0.75, 1, 0.5, 0]


@pytest.mark.parametrize("limits", [(np.inf, 1), (1, np.nan)])
def test_endless_range_is_refused(limits: tuple[float, float]) -> None:
    with pytest.raises(InvalidGraphError, match="a row would not end"):
        run_all("RaggedRange", f32(0, 0), f32(*limits), f32(1, 1))


def test_invalid_range_is_refused() -> None:
    with pytest.raises(InvalidGraphError, match="a step is 0"):
        run_all("RaggedRange", i32(0, 0), i32(1, 1), i32(1, 0))
    with pytest.raises(InvalidGraphError, match="passes"):
        run_all("RaggedRange", i32(0), i32(2**31 - 1), i32(1))
    with pytest.raises(InvalidGraphError, match="vectors or scalars"):
        run_all("RaggedRange", i32([[0]]), i32(1), i32(1))


def test_range_wider_than_int64() -> None:
    ends = np.array([-(2**63), 2**63 - 1])
    _, numbers = run_all("RaggedRange", ends[:1], ends[1:], np.array([2**62]))
    assert numbers.tolist() == [-(2**63), -(2**62), 0, 2**62]


def test_gather_rows() -> None:
    splits, words = i32(0, 2, 2, 3), f32([1, 10], [2, 20], [3, 30])
    ends, values = run_all("RaggedGather", splits, words, i32(2, 0, 1, 0), **RANK_1)
    assert (ends.tolist(), ends.dtype) == ([0, 1, 3, 3, 5], np.int32)
    assert values.tolist() == [[3, 30], [1, 10], [2, 20], [1, 10], [2, 20]]
    two = {"PARAMS_RAGGED_RANK": 1, "OUTPUT_RAGGED_RANK": 2}
    outer, ends, values = run_all("RaggedGather", splits, words, i32([[2, 1], [1, 2]]), **two)
    assert (outer.tolist(), ends.tolist()) == ([0, 2, 4], [0, 1, 1, 1, 2])
    assert values.tolist() == [[3, 30], [3, 30]]


def test_gather_nested_rows() -> None:
    attrs = {"PARAMS_RAGGED_RANK": 2, "OUTPUT_RAGGED_RANK": 2}
    inputs = (i32(0, 1, 3), i32(0, 2, 2, 3), f32(7, 8, 9), i32([1]))
    outer, inner, values = run_all("RaggedGather", *inputs, **attrs)
    assert (outer.tolist(), inner.tolist(), values.tolist()) == ([0, 2], [0, 0, 1], [9])
    with pytest.raises(InvalidGraphError, match="index 2 is not in"):
        run_all("RaggedGather", *inputs[:3], i32([2]), **attrs)


def test_ragged_to_sparse() -> None:
    one = {"RAGGED_RANK": 1}
    result = run_all("RaggedTensorToSparse", np.int64([0, 2, 2, 3]), f32(7, 8, 9), **one)
    assert [a.tolist() for a in result] == [[[0, 0], [0, 1], [2, 0]], [7, 8, 9], [3, 2]]
    inner = f32([[1, 2], [3, 4]])
    result = run_all("RaggedTensorToSparse", np.int64([0, 0, 2]), inner, **one)
    places = [[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]]
    assert [a.tolist() for a in result] == [places, [1, 2, 3, 4], [2, 2, 2]]
    nested = (np.int64([0, 1, 3]), np.int64([0, 2, 2, 3]), f32(7, 8, 9))
    result = run_all("RaggedTensorToSparse", *nested, RAGGED_RANK=2)
    assert result[0].tolist() == [[0, 0, 0], [0, 0, 1], [1, 1, 0]]
    assert result[2].tolist() == [2, 2, 2]


SPLITS = np.array([0, 2, 2, 3], np.int64)
VALUES = f32(1, 2, 3)


def padded(shape: Any, *parts: np.ndarray, kinds: tuple[str, ...] = ("ROW_SPLITS",)) -> list:
    attrs = {
        "row_partition_types": kinds,
        "num_row_partition_tensors": len(kinds),
        "Tindex": DType.INT64,
    }
    return run("RaggedTensorToTensor", i32(shape), VALUES, f32(-1), *parts, **attrs).tolist()


def test_ragged_to_dense_pads_or_truncates():
    assert padded(-1, SPLITS) == [[1, 2], [-1, -1], [3, -1]]
    assert padded([2, 1], SPLITS) == [[1], [-1]]
    assert padded([-1, 3], SPLITS)[0] == [1, 2, -1]
    rows = (np.array(3), np.array([0, 0, 2]))
    assert padded(-1, *rows, kinds=("FIRST_DIM_SIZE", "VALUE_ROWIDS")) == padded(-1, SPLITS)


@pytest.mark.parametrize("splits", [[0, 2, 1, 3], [1, 2, 2, 3], [0, 2, 2, 4], [0, 2, 2, 2]])
def test_invalid_splits_are_refused(splits):
    with pytest.raises(InvalidGraphError, match="ascend"):
        padded(-1, np.array(splits, np.int64))


def test_row_splits_gather_rows():
    ranks = {"PARAMS_RAGGED_RANK": 1, "OUTPUT_RAGGED_RANK": 1}
    splits, values = run_all("RaggedGather", SPLITS, VALUES, i32(2, 0, 2), **ranks)
    assert (splits.tolist(), values.tolist()) == ([0, 1, 3, 4], [3, 1, 2, 3])
    with pytest.raises(InvalidGraphError, match="index 3"):
        run_all("RaggedGather", SPLITS, VALUES, i32([3]), **ranks)


def test_bincount_by_row():
    inputs = (SPLITS, i32(1, 1, 0), i32(2), f32([]))
    assert run("RaggedBincount", *inputs).tolist() == [[0, 2], [0, 0], [1, 0]]
    assert run("RaggedBincount", *inputs, binary_output=True).tolist() == [[0, 1], [0, 0], [1, 0]]
    indices = np.array([[0, 0], [0, 1], [2, 0]], np.int64)
    sparse = (indices, i32(1, 1, 0), np.array([3, 2], np.int64), i32(2), f32([]))
    assert run("SparseBincount", *sparse).tolist() == [[0, 2], [0, 0], [1, 0]]


def test_unicode_decode_and_transcode():
    strings = texts("aé", "")
    splits, numbers = run_all("UnicodeDecode", strings, input_encoding="UTF-8")
    assert (splits.tolist(), numbers.tolist()) == ([0, 2, 2], [97, 233])
    coding = {"input_encoding": "UTF-8", "output_encoding": "UTF-16-BE"}
    assert run("UnicodeTranscode", strings, **coding).tolist() == [b"\0a\0\xe9", b""]
    broken = texts("x")
    broken[0] = b"a\xff"
    assert run("UnicodeTranscode", broken, **coding).tolist() == [b"\0a\xff\xfd"]
    assert run("UnicodeTranscode", broken, **coding, errors="ignore").tolist() == [b"\0a"]
    with pytest.raises(InvalidGraphError, match="is not valid utf-8"):
        run("UnicodeTranscode", broken, **coding, errors="strict")


TO_DENSE = "RaggedTensorToTensor"
TO_DENSE_SPLITS = {"row_partition_types": ("ROW_SPLITS",)}
ROW_IDS = {"row_partition_types": ("FIRST_DIM_SIZE", "VALUE_ROWIDS")}

OP_CASES += [
    case(TO_DENSE, [[3, -1], (9,), 0.0, (4,)], [(3, -1)], **TO_DENSE_SPLITS),
    case(TO_DENSE, [(3,), (9, 5), 0.0, (4,)], [(-1, -1, 5)], **TO_DENSE_SPLITS),
    case(TO_DENSE, [-1, (9, 5), 0.0, (), (9,)], [(-1, -1, 5)], **ROW_IDS),
    case(TO_DENSE, [[3, 4, -1], (9, 5), 0.0, (), (9,)], [(3, 4, 5)], **ROW_IDS),
    case(TO_DENSE, [[3, 4], None, 0.0, (4,)], [(3, 4)], **TO_DENSE_SPLITS),
    refused(TO_DENSE, [[3, 4, 6], (9, 5), 0.0, (4,)], **TO_DENSE_SPLITS),
    refused(TO_DENSE, [[3, 4, 6], (9,), 0.0, (4,)], **TO_DENSE_SPLITS),
]


test_shapes_and_costs = case_tests(OP_CASES)
