"""Arithmetic on partially known shapes."""

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


def test_full_shape_has_no_unknown_sizes():
    assert is_full(())
    assert is_full((0, 3))
    assert not is_full((2, -1))
    assert not is_full(None)


def test_element_count_needs_known_sizes():
    assert element_count((2, 0, 3)) == 0
    assert element_count(()) == 1
    assert element_count((2, -1)) == -1


def test_merge_combines_known_sizes():
    assert merge((2, -1), (-1, 3)) == (2, 3)
    assert merge(None, (1,)) == (1,)


@pytest.mark.parametrize(("a", "b"), [((2,), (3,)), ((2,), (2, 2))])
def test_merging_different_shapes_is_a_conflict(a, b):
    with pytest.raises(ShapeConflictError):
        merge(a, b)


def test_broadcast_aligns_last_dimensions():
    assert broadcast((4, 1), (3,)) == (4, 3)
    assert broadcast((-1,), (1,)) == (-1,)
    assert broadcast((-1,), (2,)) == (2,)
    assert broadcast(None, (2,)) is None
    with pytest.raises(ShapeConflictError):
        broadcast((2,), (3,))


def test_common_shape_keeps_equal_sizes():
    assert common([(2, 3), (2, 4)]) == (2, -1)
    assert common([(2,), (2, 2)]) is None


def test_arithmetic_with_unknown_sizes():
    assert multiply_dims(-1, 3) == -1
    assert multiply_dims(-1, 0) == 0
    assert divide_dim(-1, 3) == -1
    assert concatenate((1,), None) is None


def test_uneven_division_is_a_conflict():
    assert divide_dim(7, 2, evenly=False) == 3
    with pytest.raises(ShapeConflictError):
        divide_dim(7, 2)


def test_with_rank_checks_or_sets_the_rank():
    assert with_rank(None, 2) == (-1, -1)
    with pytest.raises(ShapeConflictError, match="rank 2"):
        with_rank((1,), 2)
    with pytest.raises(ShapeConflictError, match="no tensor has 9223372036854775807 dimensions"):
        with_rank(None, (1 << 63) - 1)
