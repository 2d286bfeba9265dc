"""Slice, StridedSlice, Split, Unpack, and Roll."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import Partly, case, case_tests, refused, unlike
from tests.ops.graphs import i32, run, run_all

X = np.arange(24).reshape(2, 3, 4)

_INDICES = (
    ((0, 1), (2, 3), (1, 1), {}, np.s_[0:2, 1:3]),
    ((1, 9), (-9, -9), (-1, -2), {"end_mask": 3}, np.s_[1::-1, 9::-2]),
    ((5, 1), (0, 3), (1, 1), {"begin_mask": 1, "end_mask": 1}, np.s_[:, 1:3]),
    ((1, -1), (2, 0), (1, 1), {"shrink_axis_mask": 3}, np.s_[1, -1]),
    (
        (0, 0, 1),
        (0, 0, 3),
        (1, 1, 1),
        {"ellipsis_mask": 2, "shrink_axis_mask": 1},
        np.s_[0, ..., 1:3],
    ),
    ((0, 1), (0, 2), (1, 1), {"new_axis_mask": 1}, np.s_[None, 1:2]),
    (
        (0, 0, 0),
        (0, 0, 2),
        (1, 1, 1),
        {"ellipsis_mask": 1, "new_axis_mask": 2},
        np.s_[..., None, 0:2],
    ),
    ((9,), (99,), (1,), {}, np.s_[9:99]),
)


@pytest.mark.parametrize(("begin", "end", "strides", "masks", "index"), _INDICES)
def test_strided_slice_matches_numpy(begin, end, strides, masks, index) -> None:
    out = run("StridedSlice", X, i32(list(begin)), i32(list(end)), i32(list(strides)), **masks)
    np.testing.assert_array_equal(out, X[index])
    assert out.shape == X[index].shape


def test_new_axis_bit_at_the_ellipsis_is_ignored() -> None:
    masks = {"ellipsis_mask": 1, "new_axis_mask": 1}
    out = run("StridedSlice", X, i32(0, 1), i32(0, 2), i32(1, 1), **masks)
    np.testing.assert_array_equal(out, X[..., 1:2])


@pytest.mark.parametrize(
    ("begin", "end", "strides", "masks", "message"),
    [
        ((0,), (1,), (0,), {}, "a stride cannot be 0"),
        ((2,), (3,), (1,), {"shrink_axis_mask": 1}, "no element 2 among 2"),
        ((0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 1, 1), {}, "4 axes are indexed"),
        ((0, 0), (1,), (1, 1), {}, "differ in length"),
    ],
)
def test_invalid_strided_slice_is_refused(begin, end, strides, masks, message) -> None:
    with pytest.raises(InvalidGraphError, match=message):
        run("StridedSlice", X, i32(list(begin)), i32(list(end)), i32(list(strides)), **masks)


def test_strided_slice_of_one_element_is_an_array() -> None:
    out = run("StridedSlice", i32(4, 5), i32([1]), i32([2]), i32([1]), shrink_axis_mask=1)
    assert isinstance(out, np.ndarray)
    assert (out.shape, int(out)) == ((), 5)


def test_slice() -> None:
    out = run("Slice", X, i32(1, 0, 2), i32(1, -1, 2))
    np.testing.assert_array_equal(out, X[1:2, :, 2:4])
    with pytest.raises(InvalidGraphError, match="do not lie within 2"):
        run("Slice", X, i32(1, 0, 2), i32(2, -1, 2))


def test_split() -> None:
    parts = run_all("Split", i32(2), X, num_split=2)
    np.testing.assert_array_equal(parts[1], X[:, :, 2:])
    with pytest.raises(InvalidGraphError, match="cannot be split into 2 equal parts"):
        run_all("Split", i32(1), X, num_split=2)


def test_split_v() -> None:
    parts = run_all("SplitV", X, i32(1, -1), i32(2), num_split=2)
    assert [p.shape for p in parts] == [(2, 3, 1), (2, 3, 3)]
    with pytest.raises(InvalidGraphError, match="do not add up to 4"):
        run_all("SplitV", X, i32(1, 2), i32(2), num_split=2)


def test_unpack() -> None:
    parts = run_all("Unpack", i32(7, 8), num=2)
    assert [(p.shape, int(p)) for p in parts] == [((), 7), ((), 8)]
    with pytest.raises(InvalidGraphError, match="2 slices cannot become 3"):
        run_all("Unpack", i32(7, 8), num=3)


@pytest.mark.parametrize("open_ends", [{"begin_mask": 1}, {"end_mask": 1}])
def test_shrunk_axis_ignores_begin_and_end_masks(open_ends: dict[str, int]) -> None:
    """TensorFlow ignores both masks there."""
    vector, one = i32(4, 5, 6), i32([1])
    out = run("StridedSlice", vector, i32([2]), i32([3]), one, shrink_axis_mask=1, **open_ends)
    assert out.tolist() == 6
    with pytest.raises(InvalidGraphError, match="no element 7 among 3"):
        run("StridedSlice", vector, i32([7]), i32([8]), one, shrink_axis_mask=1, **open_ends)


def test_slice_of_a_scalar_is_an_array() -> None:
    none = np.zeros(0, np.int32)
    assert isinstance(run("Slice", np.array(7), none, none), np.ndarray)


def test_strided_slice_update_changes_a_copy() -> None:
    x = i32(1, 2, 3)
    out = run("TensorStridedSliceUpdate", x, i32([1]), i32([3]), i32([1]), i32(8, 9))
    assert (out.tolist(), x.tolist()) == ([1, 8, 9], [1, 2, 3])


OP_CASES = [
    case("Slice", [(4, 5), [1, 2], [2, 3]], [(2, 3)]),
    case("Slice", [(4, 5), [1, 2], [-1, -1]], [(3, 3)]),
    case("Slice", [(4, -1), [1, 2], [-1, -1]], [(3, -1)]),
    case("Slice", [(4, 5), (2,), [-1, 5]], [(-1, 5)]),
    case("Slice", [(4, 5), [1, 2], (2,)], [(-1, -1)]),
    case("Slice", [(4, 5), [1, 2], Partly((2, -1))], [(2, -1)]),
    case("Slice", [None, [1, 2], [2, 3]], [(2, 3)]),
    case("Slice", [None, (-1,), (-1,)], [None]),
    case("Slice", [None, (3,), (-1,)], [(-1, -1, -1)]),
    unlike(refused("Slice", [(4, 5), [1, 2], [2, 4]])),
    unlike(refused("Slice", [(4, 5), [1, 2], [5, 1]])),
    refused("Slice", [(4, 5), [1], [2]]),
    case("Roll", [(4, -1), 1, 0], [(4, -1)]),
    case("Slice", [(4, 5), [1, 2], [0, 3]], [(0, 3)]),
    case("Slice", [(0, 5), [0, 0], [0, -1]], [(0, 5)]),
    case("Slice", [(0, 5), [0, 0], [-1, -1]], [(0, 5)]),
    unlike(refused("Slice", [(0, 5), [0, 0], [1, 5]])),
    case("Slice", [(), (0,), (0,)], [()]),
    case("Slice", [None, (0,), (-1,)], [()]),
    case("Slice", [(1, 5), [0, 0], [-1, -1]], [(1, 5)]),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_roll() -> None:
    """The example of the ``tf.roll`` documentation."""
    assert run("Roll", i32(range(5)), i32(2), i32(0)).tolist() == [3, 4, 0, 1, 2]
    x = i32([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
    result = run("Roll", x, i32(1, -2), i32(0, 1))
    assert result.tolist() == [[7, 8, 9, 5, 6], [2, 3, 4, 0, 1]]
    assert run("Roll", x, i32(2, -3), i32(1, 1)).tolist() == [[1, 2, 3, 4, 0], [6, 7, 8, 9, 5]]
    assert run("Roll", x[:, :2], i32(1), i32(-1)).tolist() == [[1, 0], [6, 5]]
    with pytest.raises(InvalidGraphError, match="no axis 2 among 2"):
        run("Roll", x, i32(1), i32(2))
