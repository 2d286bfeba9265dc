"""Diagonals and bands of matrices, and cumulative products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from tests.litert.one_op import check, integers, numbers

_MAIN = np.int32(0)
_ZERO = np.float32(0)


@pytest.mark.parametrize("version", ["V2", "V3"])
@pytest.mark.parametrize("size", [-1, 4])
def test_newer_versions_of_diagonals(version: str, size: int) -> None:
    sizes = [np.int32(size), np.int32(size)]
    inputs = [numbers(2, 3, 4), _MAIN, *sizes, _ZERO]
    assert check(f"MatrixDiag{version}", inputs, constant=[1, 2, 3, 4]) == ["MATRIX_DIAG"]
    source = [numbers(2, 3, 3), numbers(2, 3, seed=5), np.int32([0, 0])]
    assert check(f"MatrixSetDiag{version}", source, constant=[2]) == ["MATRIX_SET_DIAG"]


ALIGNMENTS = ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")
OFFSETS = (0, 1, -2, (-1, 0), (-1, 2), (0, 1), (-2, -1), (1, 1))
COMPUTED = pytest.mark.parametrize("computed", [False, True], ids=["constant", "computed"])


def constants(computed: bool, count: int) -> list[int]:
    """Indices of the constant inputs after the matrices."""
    return [] if computed else [*range(1, count + 1)]


@COMPUTED
@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize("offsets", OFFSETS)
def test_matrix_diag_part(offsets: Any, align: str, computed: bool) -> None:
    if computed and offsets == (1, 1):
        pytest.skip("the rank of the result depends on computed numbers")
    for shape in ((4, 4), (2, 3, 5), (2, 3, 5, 3)):
        inputs = [numbers(*shape), np.int32(offsets), np.float32(9)]
        check("MatrixDiagPartV3", inputs, constant=constants(computed, 2), align=align)
    check("MatrixDiagPartV2", inputs, constant=constants(computed, 2))


@pytest.mark.parametrize("version", ["V2", "V3"])
def test_matrix_diag_part_of_one_element(version: str) -> None:
    check(f"MatrixDiagPart{version}", [numbers(5, 4), np.int32([3]), np.float32(9)])


def test_matrix_diag_part_v1() -> None:
    for values in (numbers(3, 4), integers(2, 5, 3), integers(2, 3, 3, dtype=np.int64)):
        assert check("MatrixDiagPart", [values]) == ["RESHAPE", "GATHER"]


@COMPUTED
@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize(
    ("offsets", "sizes"),
    [
        (1, (-1, -1)),
        (-2, (-1, -1)),
        (0, (5, -1)),
        (0, (-1, 6)),
        (0, (4, 7)),
        ((-1, 1), (-1, -1)),
        ((-1, 1), (4, 5)),
        ((1, 3), (4, -1)),
        ((-3, -1), (-1, 4)),
    ],
)
def test_matrix_diag(offsets: Any, sizes: tuple[int, int], align: str, computed: bool) -> None:
    shape = (2, 4) if isinstance(offsets, int) else (2, 3, 4)
    rest = [np.int32(offsets), *(np.int32(size) for size in sizes), np.float32(7)]
    inputs = [numbers(*shape), *rest]
    check("MatrixDiagV3", inputs, constant=constants(computed, 4), align=align)
    check("MatrixDiagV2", inputs, constant=constants(computed, 4))


@COMPUTED
@pytest.mark.parametrize("align", ALIGNMENTS)
@pytest.mark.parametrize(
    ("offsets", "shape"), [(1, (2, 3)), (-1, (2, 3)), ((-1, 1), (2, 3, 4)), ((1, 2), (2, 2, 3))]
)
def test_matrix_set_diag(offsets: Any, shape: tuple[int, ...], align: str, computed: bool) -> None:
    inputs = [numbers(2, 4, 4), numbers(*shape, seed=5), np.int32(offsets)]
    check("MatrixSetDiagV3", inputs, constant=[] if computed else [2], align=align)


@pytest.mark.parametrize("band", [(-1, 0), (1, -1), (0, 2), (-1, -1)])
@pytest.mark.parametrize("open_sizes", [0, 1])
def test_matrix_band_part(band: tuple[int, int], open_sizes: int) -> None:
    widths = [np.int64(width) for width in band]
    for values in (numbers(2, 3, 4), integers(2, 3, 4, low=1), numbers(2, 1, 2, 4, 4)):
        ran = check("MatrixBandPart", [values, *widths], constant=[1, 2], open_sizes=open_sizes)
        assert ran == ["SELECT_V2"]
    check("MatrixBandPart", [numbers(2, 3, 4), *widths])
    truths = np.ones((2, 4, 4), bool)
    assert check("MatrixBandPart", [truths, *widths], constant=[1, 2]) == ["LOGICAL_AND"]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumulative_products(axis: int, reverse: bool, exclusive: bool) -> None:
    for values in (numbers(3, 5, 4), integers(3, 2), integers(2, 3, dtype=np.int64)):
        ran = check(
            "Cumprod", [values, np.int32(axis)],
            constant=[1], reverse=reverse, exclusive=exclusive,
        )  # fmt: skip
        assert ran == ["EXPAND_DIMS", "SELECT_V2", "REDUCE_PROD"]


def test_cumulative_product_with_an_open_batch() -> None:
    inputs = [numbers(2, 5, 2, 3), np.int64(1)]
    check("Cumprod", inputs, constant=[1], open_sizes=1)


@pytest.mark.parametrize(
    ("values", "open_sizes", "error"),
    [
        (numbers(300), 0, "along 300 numbers"),
        (numbers(4), 1, "not known"),
    ],
)
def test_unsupported_cumulative_product_is_refused(
    values: Any, open_sizes: int, error: str
) -> None:
    with pytest.raises(UnsupportedError, match=error):
        check("Cumprod", [values, np.int32(0)], constant=[1], open_sizes=open_sizes)


def test_matrix_diag_of_a_scalar_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="its diagonal is a single number"):
        check("MatrixDiag", [np.float32(3)])
