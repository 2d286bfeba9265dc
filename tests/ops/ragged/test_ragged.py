"""RaggedRange, RaggedGather, and RaggedTensorToSparse."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run_all

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

test_shapes_and_costs = case_tests(OP_CASES)


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
