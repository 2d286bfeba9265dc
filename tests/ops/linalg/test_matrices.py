"""Matrix products, diagonals, Einsum, and linear algebra."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run

RNG = np.random.default_rng(5)
A = RNG.normal(size=(3, 4)).astype(np.float32)
B = RNG.normal(size=(4, 5)).astype(np.float32)


def test_mat_mul() -> None:
    np.testing.assert_allclose(run("MatMul", A, B), A @ B, rtol=1e-6)
    turned = run("MatMul", A.T.copy(), B.T.copy(), transpose_a=True, transpose_b=True)
    np.testing.assert_allclose(turned, A @ B, rtol=1e-6)
    assert (
        run("MatMul", np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)).tolist()
        == [[0] * 3] * 2
    )


def test_invalid_mat_mul_names_node_and_shapes() -> None:
    message = r"node 'y' \(MatMul\) cannot run on float32\[3, 4\], float32\[3, 4\]"
    with pytest.raises(InvalidGraphError, match=message):
        run("MatMul", A, A)


def test_half_precision_products_are_accumulated_in_float32() -> None:
    # 2048 + 1 is not representable in float16: a float16 sum would lose the ones.
    x = np.array([[2048] + [1] * 64], np.float16)
    assert run("MatMul", x, np.ones((65, 1), np.float16)).tolist() == [[2112]]
    narrow = np.ones((1, 300), ml_dtypes.bfloat16)
    assert float(run("MatMul", narrow, narrow.T.copy())[0, 0]) == 300


def test_batch_mat_mul() -> None:
    x, y = RNG.normal(size=(2, 1, 3, 4)), RNG.normal(size=(5, 4, 2))
    np.testing.assert_allclose(run("BatchMatMulV2", x, y), x @ y)
    turned = run("BatchMatMulV2", np.swapaxes(x, -1, -2).copy(), y, adj_x=True)
    np.testing.assert_allclose(turned, x @ y)
    with pytest.raises(InvalidGraphError, match="leading axes"):
        run("BatchMatMul", x, y)


def test_einsum() -> None:
    np.testing.assert_allclose(run("Einsum", A, B, equation="ij,jk->ki"), (A @ B).T, rtol=1e-5)
    with pytest.raises(InvalidGraphError, match="does not fit the shape"):
        run("Einsum", A, B, equation="ijl,jk->ki")
    with pytest.raises(InvalidGraphError, match="unknown labels"):
        run("Einsum", A, B, equation="ij,jk->iz")


def test_matrix_diagonals() -> None:
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    assert run("MatrixDiagPart", x).tolist() == [0, 4, 8]
    several = run("MatrixDiagPartV3", x, i32(-1, 1), f32(9), align="RIGHT_LEFT")
    assert several.tolist() == [[9, 1, 5], [0, 4, 8], [3, 7, 9]]
    several = run("MatrixDiagPartV3", x, i32(-1, 1), f32(9), align="LEFT_RIGHT")
    assert several.tolist() == [[1, 5, 9], [0, 4, 8], [9, 3, 7]]
    assert run("MatrixDiag", f32(1, 2)).tolist() == [[1, 0], [0, 2]]
    assert run("MatrixSetDiag", x, f32(-1, -2, -3)).tolist() == [[-1, 1, 2], [3, -2, 5], [6, 7, -3]]


def test_linear_algebra() -> None:
    x = np.array([[4, 2], [2, 3]], np.float64)
    np.testing.assert_allclose(run("MatrixInverse", x) @ x, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(run("MatrixDeterminant", x), 8)
    root = run("Cholesky", x)
    np.testing.assert_allclose(root @ root.T, x)
    with pytest.raises(InvalidGraphError, match="singular"):
        run("MatrixInverse", np.ones((2, 2)))


FUNCTIONS = ("MatrixExponential", "MatrixLogarithm", "MatrixSquareRoot")

OP_CASES = [
    case("Cholesky", [(2, 3, 3)], [(2, 3, 3)], 18),
    case("Cholesky", [(-1, 3)], [(3, 3)], None),
    case("Cholesky", [None], [None], None),
    refused("Cholesky", [(2, 3)]),
    refused("Cholesky", [(3,)]),
    case("MatrixInverse", [(2, 3, 3)], [(2, 3, 3)], 108),
    *(case(op, [(2, 3, 3)], [(2, 3, 3)]) for op in FUNCTIONS),
    case("MatrixDeterminant", [(2, 5, 3, 3)], [(2, 5)], 180),
    case("MatrixDeterminant", [None], [None], None),
    refused("MatrixDeterminant", [(3,)]),
    case("MatrixSolve", [(2, 3, 3), (2, 3, 5)], [(2, 3, 5)], 216),
    case("MatrixSolve", [(2, 3, -1), (-1, 3, 5)], [(2, 3, 5)], None),
    unlike(case("MatrixSolve", [None, (3, 5)], [None], None)),
    refused("MatrixSolve", [(3, 3), (4, 5)]),
    refused("MatrixSolve", [(3, 4), (3, 5)]),
    refused("MatrixSolve", [(3, 3), (3,)]),
    refused("MatrixSolve", [(3,), (3, 5)]),
    case("MatrixTriangularSolve", [(2, 3, 3), (2, 3, 5)], [(2, 3, 5)]),
    case("Cross", [(2, 3), (-1, 3)], [(2, 3)]),
    refused("Cross", [(2, 3), (3, 3)]),
    case("MatrixDeterminant", [(3, 3)], [()], 18),
    case("MatrixSolve", [(3, 3), (3, 1)], [(3, 1)], 36),
]


OP_CASES += [
    case("MatrixBandPart", [(2, -1, 3), 1, 1], [(2, -1, 3)]),
    case("MatrixDiagPart", [(2, 3, 4)], [(2, 3)]),
    case("MatrixDiagPart", [(2, 5, 4)], [(2, 4)]),
    case("MatrixDiagPart", [(2, -1, 4)], [(2, -1)]),
    case("MatrixDiagPart", [(2, -1, 0)], [(2, 0)]),
    case("MatrixDiagPart", [None], [None]),
    refused("MatrixDiagPart", [(3,)]),
    case("MatrixDiagPartV2", [(2, 5, 7), 0, 0.0], [(2, 5)]),
    case("MatrixDiagPartV2", [(2, 5, 7), 3, 0.0], [(2, 4)]),
    case("MatrixDiagPartV2", [(2, 5, 7), [-2], 0.0], [(2, 3)]),
    case("MatrixDiagPartV2", [(2, 5, 7), [-2, 1], 0.0], [(2, 4, 5)]),
    case("MatrixDiagPartV2", [(2, 5, 7), [3, 4], 0.0], [(2, 2, 4)]),
    case("MatrixDiagPartV2", [(2, 5, 7), [-4, -2], 0.0], [(2, 3, 3)]),
    case("MatrixDiagPartV2", [(0, 0), 0, 0.0], [(0,)]),
    case("MatrixDiagPartV2", [(2, 5, -1), [0, 1], 0.0], [(2, 2, -1)]),
    case("MatrixDiagPartV2", [(2, 5, 7), (1,), 0.0], [None]),
    case("MatrixDiagPartV2", [None, 0, 0.0], [None]),
    case("MatrixDiagPartV3", [(2, 5, 7), [6, 6], 0.0], [(2, 1)]),
    refused("MatrixDiagPartV3", [(2, 5, 7), 7, 0.0]),
    refused("MatrixDiagPartV3", [(2, 5, 7), -5, 0.0]),
    refused("MatrixDiagPartV3", [(2, 5, 7), [1, 0], 0.0]),
    refused("MatrixDiagPartV3", [(2, 5, 7), [0, 1, 2], 0.0]),
    refused("MatrixDiagPartV3", [(5,), 0, 0.0]),
    unlike(refused("MatrixDiagPartV3", [(5, -1), -5, 0.0])),
    unlike(refused("MatrixDiagPartV3", [(-1, 7), 7, 0.0])),
    case("MatrixDiagPartV3", [(-1, 7), -9, 0.0], [(-1,)]),
    case("MatrixDiag", [(2, 3)], [(2, 3, 3)]),
    case("MatrixDiag", [None], [None]),
    refused("MatrixDiag", [()]),
    case("MatrixDiagV2", [(2, 3), 0, -1, -1, 0.0], [(2, 3, 3)]),
    case("MatrixDiagV2", [(2, 3), 1, -1, -1, 0.0], [(2, 4, 4)]),
    case("MatrixDiagV2", [(2, 3), -2, -1, -1, 0.0], [(2, 5, 5)]),
    case("MatrixDiagV2", [(2, 3), 0, 3, 6, 0.0], [(2, 3, 6)]),
    case("MatrixDiagV2", [(2, 3), 0, -1, 6, 0.0], [(2, 3, 6)]),
    case("MatrixDiagV2", [(2, 3), 2, 4, -1, 0.0], [(2, 4, 5)]),
    case("MatrixDiagV2", [(2, 3, 4), [-1, 1], -1, -1, 0.0], [(2, 4, 4)]),
    case("MatrixDiagV3", [(2, 2, 4), [-2, -1], 7, -1, 0.0], [(2, 7, 4)]),
    unlike(case("MatrixDiagV3", [(2, 3), 0, (), 6, 0.0], [(2, -1, 6)])),
    unlike(case("MatrixDiagV3", [(2, 3), 0, 4, (), 0.0], [(2, 4, -1)])),
    unlike(case("MatrixDiagV3", [(2, -1), 0, 4, (), 0.0], [(2, 4, -1)])),
    case("MatrixDiagV3", [(2, 3), (), -1, -1, 0.0], [None]),
    case("MatrixDiagV3", [None, 0, -1, -1, 0.0], [None]),
    refused("MatrixDiagV3", [(2, 3), 0, 2, -1, 0.0]),
    refused("MatrixDiagV3", [(2, 3), 0, 4, 5, 0.0]),
    refused("MatrixDiagV3", [(2, 3), [1, 0], -1, -1, 0.0]),
    refused("MatrixDiagV3", [(2, 3), [0, 1, 2], -1, -1, 0.0]),
    refused("MatrixDiagV3", [(3, 4), [0, 1], -1, -1, 0.0]),
    refused("MatrixDiagV3", [(4,), [0, 1], -1, -1, 0.0]),
    refused("MatrixDiagV3", [(), 0, -1, -1, 0.0]),
    *(case(op, [(2, 3, 4), (2, 3)], [(2, 3, 4)]) for op in ("MatrixSetDiag",)),
    *(case(f"MatrixSetDiagV{i}", [(2, 3, 4), (2, 3), 0], [(2, 3, 4)]) for i in (2, 3)),
    case("Diag", [(2, 3)], [(2, 3, 2, 3)]),
    case("Diag", [None], [None]),
    case("DiagPart", [(2, -1, 2, 3)], [(2, 3)]),
    case("DiagPart", [None], [None]),
    refused("DiagPart", [(2, 3, 2, 4)]),
    refused("DiagPart", [(2, 3, 2)]),
    refused("MatrixDiagPartV2", [(2, 0, 7), -1, 0.0]),
    refused("MatrixDiagPartV2", [(2, 5, 0), 1, 0.0]),
    case("MatrixDiagPart", [(5, 4)], [(4,)]),
    case("MatrixDiag", [(3,)], [(3, 3)]),
    case("MatrixDiagV2", [(3,), 0, -1, -1, 0.0], [(3, 3)]),
    case("MatrixDiagV2", [(2, 0), 0, -1, 6, 0.0], [(2, 0, 6)]),
    case("MatrixDiagV2", [(2, 1), 0, -1, 6, 0.0], [(2, 1, 6)]),
]


IMAGES = i32(
    [[[1, 2, 3, 4], [5, 6, 7, 8], [9, 8, 7, 6]], [[5, 4, 3, 2], [1, 2, 3, 4], [5, 6, 7, 8]]]
)


@pytest.mark.parametrize(
    ("op", "attrs", "k", "padding", "expected"),
    [
        ("V3", {}, 1, 0, [[2, 7, 6], [4, 3, 8]]),
        (
            "V3",
            {},
            (0, 2),
            0,
            [[[0, 3, 8], [2, 7, 6], [1, 6, 7]], [[0, 3, 4], [4, 3, 8], [5, 2, 7]]],
        ),
        (
            "V3",
            {"align": "LEFT_RIGHT"},
            (0, 2),
            0,
            [[[3, 8, 0], [2, 7, 6], [1, 6, 7]], [[3, 4, 0], [4, 3, 8], [5, 2, 7]]],
        ),
        (
            "V2",
            {},
            (0, 2),
            0,
            [[[3, 8, 0], [2, 7, 6], [1, 6, 7]], [[3, 4, 0], [4, 3, 8], [5, 2, 7]]],
        ),
        (
            "V3",
            {},
            (1, 3),
            9,
            [[[9, 9, 4], [9, 3, 8], [2, 7, 6]], [[9, 9, 2], [9, 3, 4], [4, 3, 8]]],
        ),
        ("V3", {}, -2, 0, [[9], [5]]),
        ("V3", {}, (-2, -1), 0, [[[5, 8], [9, 0]], [[1, 6], [5, 0]]]),
        (
            "V3",
            {"align": "RIGHT_RIGHT"},
            (-2, -1),
            0,
            [[[5, 8], [0, 9]], [[1, 6], [0, 5]]],
        ),
    ],
)
def test_matrix_diag_part(op: str, attrs: dict, k: Any, padding: int, expected: list) -> None:
    """The examples of the ``tf.linalg.diag_part`` documentation."""
    result = run(f"MatrixDiagPart{op}", IMAGES, i32(k), i32(padding), **attrs)
    assert result.tolist() == expected


@pytest.mark.parametrize("k", [4, -3, (1, 0), (0, 1, 2), (0, 4), (-3, 0)])
def test_missing_diagonals_are_refused(k: Any) -> None:
    with pytest.raises(InvalidGraphError, match="diagonals"):
        run("MatrixDiagPartV3", IMAGES, i32(k), i32(0))


BAND = i32([[[0, 8, 9], [1, 2, 3], [4, 5, 0]], [[0, 2, 3], [6, 7, 9], [9, 1, 0]]])


def matrix_diag(diagonals: Any, k: Any, *rest: int, op: str = "V3", **attrs: str) -> list[Any]:
    """Matrices from diagonals, and the numbers of rows and columns and the padding value."""
    arguments = [*rest, *(-1, -1, 0)[len(rest) :]]
    return run(f"MatrixDiag{op}", i32(diagonals), i32(k), *map(i32, arguments), **attrs).tolist()


def test_matrix_diag() -> None:
    """The examples of the ``tf.linalg.diag`` documentation."""
    whole = [[[1, 8, 0], [4, 2, 9], [0, 5, 3]], [[6, 2, 0], [9, 7, 3], [0, 1, 9]]]
    assert matrix_diag(BAND, (-1, 1)) == whole
    left_aligned = [[[8, 9, 0], [1, 2, 3], [0, 4, 5]], [[2, 3, 0], [6, 7, 9], [0, 9, 1]]]
    assert matrix_diag(left_aligned, (-1, 1), align="LEFT_RIGHT") == whole
    v2_aligned = [[[8, 9, 0], [1, 2, 3], [4, 5, 0]], [[2, 3, 0], [6, 7, 9], [9, 1, 0]]]
    assert matrix_diag(v2_aligned, (-1, 1), op="V2") == whole
    assert matrix_diag([[1, 2], [3, 4]], 0) == [[[1, 0], [0, 2]], [[3, 0], [0, 4]]]
    assert matrix_diag([1, 2], 1) == [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    assert matrix_diag([1, 2], -1, 3, 4, 9) == [[9, 9, 9, 9], [1, 9, 9, 9], [9, 2, 9, 9]]
    assert matrix_diag([1, 2], -1, 3, -1, 9) == [[9, 9], [1, 9], [9, 2]]
    assert matrix_diag([1, 2], 1, -1, 3) == [[0, 1, 0], [0, 0, 2]]
    pairs = [[[1, 2], [3, 0]], [[4, 5], [6, 0]], [[7, 8], [9, 0]]]
    assert matrix_diag(pairs, (-1, 0)) == [
        [[1, 0], [3, 2]],
        [[4, 0], [6, 5]],
        [[7, 0], [9, 8]],
    ]


def test_invalid_diagonals_are_refused() -> None:
    with pytest.raises(InvalidGraphError, match="holds no such diagonals"):
        matrix_diag([1, 2], (0, 1))
    with pytest.raises(InvalidGraphError, match="holds no such diagonals"):
        matrix_diag(1, 0)
    with pytest.raises(InvalidGraphError, match="are not diagonals"):
        matrix_diag([1, 2], (1, 0))
    with pytest.raises(InvalidGraphError, match="for matrices"):
        matrix_diag([1, 2], 0, 4, 4)


def test_matrix_set_diag() -> None:
    """The examples of the ``tf.linalg.set_diag`` documentation."""
    sevens = np.full((2, 3, 4), 7, np.int32)
    rows = i32([[1, 2, 3], [4, 5, 6]])
    assert run("MatrixSetDiag", sevens, rows).tolist() == [
        [[1, 7, 7, 7], [7, 2, 7, 7], [7, 7, 3, 7]],
        [[4, 7, 7, 7], [7, 5, 7, 7], [7, 7, 6, 7]],
    ]
    assert run("MatrixSetDiagV3", sevens, rows, i32(1)).tolist() == [
        [[7, 1, 7, 7], [7, 7, 2, 7], [7, 7, 7, 3]],
        [[7, 4, 7, 7], [7, 7, 5, 7], [7, 7, 7, 6]],
    ]
    bands = i32(
        [
            [[0, 9, 1], [6, 5, 8], [1, 2, 3], [4, 5, 0]],
            [[0, 1, 2], [5, 6, 4], [6, 1, 2], [3, 4, 0]],
        ]
    )
    assert run("MatrixSetDiagV3", sevens, bands, i32(-1, 2)).tolist() == [
        [[1, 6, 9, 7], [4, 2, 5, 1], [7, 5, 3, 8]],
        [[6, 5, 1, 7], [3, 1, 6, 2], [7, 4, 2, 4]],
    ]
    assert (sevens == 7).all()


def test_diag_and_diag_part() -> None:
    result = run("Diag", i32([[1, 2]]))
    assert result.shape == (1, 2, 1, 2)
    assert result[0].tolist() == [[[1, 0]], [[0, 2]]]
    assert run("DiagPart", result).tolist() == [[1, 2]]
    with pytest.raises(InvalidGraphError, match="not twice the same shape"):
        run("DiagPart", i32([[1, 2, 3], [4, 5, 6]]))


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [
        (0, 0, [[1, 0, 0], [0, 5, 0]]),
        (0, 1, [[1, 2, 0], [0, 5, 6]]),
        (1, 0, [[1, 0, 0], [4, 5, 0]]),
        (-1, 0, [[1, 0, 0], [4, 5, 0]]),
        (0, -1, [[1, 2, 3], [0, 5, 6]]),
        (-1, -1, [[1, 2, 3], [4, 5, 6]]),
    ],
)
def test_matrix_band_part(lower: int, upper: int, expected: list[list[int]]) -> None:
    x = i32([[1, 2, 3], [4, 5, 6]])
    assert run("MatrixBandPart", x, i32(lower), i32(upper)).tolist() == expected


test_shapes_and_costs = case_tests(OP_CASES)
