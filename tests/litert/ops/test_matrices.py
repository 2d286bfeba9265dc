"""Diagonals and bands of matrices, and running products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from tests.litert.one_op import check, integers, numbers

_MAIN = np.int32(0)
_ANY = np.int32(-1)
_ZERO = np.float32(0)


@pytest.mark.parametrize("version", ["V2", "V3"])
@pytest.mark.parametrize("size", [-1, 4])
def test_newer_diagonals(version: str, size: int) -> None:
    sizes = [np.int32(size), np.int32(size)]
    inputs = [numbers(2, 3, 4), _MAIN, *sizes, _ZERO]
    assert check(f"MatrixDiag{version}", inputs, constant=[1, 2, 3, 4]) == ["MATRIX_DIAG"]
    given = [numbers(2, 3, 3), numbers(2, 3, seed=5), np.int32([0, 0])]
    assert check(f"MatrixSetDiag{version}", given, constant=[2]) == ["MATRIX_SET_DIAG"]


@pytest.mark.parametrize(
    ("rest", "told"),
    [
        ([np.int32(1), _ANY, _ANY, _ZERO], "another diagonal"),
        ([np.int32([-1, 0]), _ANY, _ANY, _ZERO], "another diagonal"),
        ([_MAIN, np.int32(5), _ANY, _ZERO], "larger than the diagonal"),
        ([_MAIN, _ANY, np.int32(6), _ZERO], "larger than the diagonal"),
        ([_MAIN, _ANY, _ANY, np.float32(7)], "other numbers than zero"),
    ],
)
def test_diagonals_that_no_operator_makes(rest: list[Any], told: str) -> None:
    with pytest.raises(UnsupportedError, match=told):
        check("MatrixDiagV3", [numbers(2, 4), *rest], constant=[1, 2, 3, 4])


def test_another_diagonal_is_not_set() -> None:
    inputs = [numbers(2, 3, 3), numbers(2, 2), np.int32(1)]
    with pytest.raises(UnsupportedError, match="another diagonal"):
        check("MatrixSetDiagV3", inputs, constant=[2])


@pytest.mark.parametrize("band", [(-1, 0), (1, -1), (0, 2), (-1, -1)])
@pytest.mark.parametrize("open_sizes", [0, 1])
def test_bands(band: tuple[int, int], open_sizes: int) -> None:
    widths = [np.int64(width) for width in band]
    for values in (numbers(2, 3, 4), integers(2, 3, 4, low=1), numbers(2, 1, 2, 4, 4)):
        ran = check("MatrixBandPart", [values, *widths], constant=[1, 2], open_sizes=open_sizes)
        assert ran == ["SELECT_V2"]
    truths = np.ones((2, 4, 4), bool)
    assert check("MatrixBandPart", [truths, *widths], constant=[1, 2]) == ["LOGICAL_AND"]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_running_products(axis: int, reverse: bool, exclusive: bool) -> None:
    for values in (numbers(3, 5, 4), integers(3, 2), integers(2, 3, dtype=np.int64)):
        ran = check(
            "Cumprod", [values, np.int32(axis)],
            constant=[1], reverse=reverse, exclusive=exclusive,
        )  # fmt: skip
        assert ran == ["EXPAND_DIMS", "SELECT_V2", "REDUCE_PROD"]


def test_a_running_product_of_any_batch() -> None:
    inputs = [numbers(2, 5, 2, 3), np.int64(1)]
    check("Cumprod", inputs, constant=[1], open_sizes=1)


@pytest.mark.parametrize(
    ("values", "open_sizes", "told"),
    [
        (numbers(300), 0, "along 300 numbers"),
        (numbers(4), 1, "not known"),
        (numbers(1, 1, 2, 1, 1), 0, "5 dimensions at most, not from 6"),
    ],
)
def test_running_products_that_are_refused(values: Any, open_sizes: int, told: str) -> None:
    with pytest.raises(UnsupportedError, match=told):
        check("Cumprod", [values, np.int32(0)], constant=[1], open_sizes=open_sizes)


def test_a_diagonal_of_a_single_number_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="its diagonal is a single number"):
        check("MatrixDiag", [np.float32(3)])
