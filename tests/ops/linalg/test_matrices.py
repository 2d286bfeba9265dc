"""Matrix products, diagonals, Einsum, and linear algebra."""

from __future__ import annotations

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

test_shapes_and_costs = case_tests(OP_CASES)
