"""Arithmetic of shapes that are known in part."""

import pytest

from mobileprep.ops.shape_function import (
    ShapeConflictError,
    broadcast,
    common,
    concatenate,
    divide_dim,
    element_count,
    is_full,
    merge,
    multiply_dims,
    with_rank,
)


def test_only_a_shape_without_unknown_sizes_is_full():
    assert is_full(())
    assert is_full((0, 3))
    assert not is_full((2, -1))
    assert not is_full(None)


def test_elements_are_counted_where_all_sizes_are_known():
    assert element_count((2, 0, 3)) == 0
    assert element_count(()) == 1
    assert element_count((2, -1)) == -1


def test_merging_adds_up_what_is_known():
    assert merge((2, -1), (-1, 3)) == (2, 3)
    assert merge(None, (1,)) == (1,)


@pytest.mark.parametrize(("a", "b"), [((2,), (3,)), ((2,), (2, 2))])
def test_merging_what_differs_is_a_conflict(a, b):
    with pytest.raises(ShapeConflictError):
        merge(a, b)


def test_broadcasting_lines_up_last_dimensions():
    assert broadcast((4, 1), (3,)) == (4, 3)
    assert broadcast((-1,), (1,)) == (-1,)
    assert broadcast((-1,), (2,)) == (2,)
    assert broadcast(None, (2,)) is None
    with pytest.raises(ShapeConflictError):
        broadcast((2,), (3,))


def test_branches_have_in_common_what_is_equal():
    assert common([(2, 3), (2, 4)]) == (2, -1)
    assert common([(2,), (2, 2)]) is None


def test_unknown_sizes_stay_unknown():
    assert multiply_dims(-1, 3) == -1
    assert multiply_dims(-1, 0) == 0
    assert divide_dim(-1, 3) == -1
    assert concatenate((1,), None) is None


def test_an_uneven_division_is_a_conflict():
    assert divide_dim(7, 2, evenly=False) == 3
    with pytest.raises(ShapeConflictError):
        divide_dim(7, 2)


def test_a_rank_is_checked_or_assumed():
    assert with_rank(None, 2) == (-1, -1)
    with pytest.raises(ShapeConflictError, match="rank 2"):
        with_rank((1,), 2)
    with pytest.raises(ShapeConflictError, match="no tensor has 9223372036854775807 dimensions"):
        with_rank(None, (1 << 63) - 1)
