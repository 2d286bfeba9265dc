"""Sparse tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.ops.sparse.sparse import flat_places, in_order, sparse_shape
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import f32, i32, run, run_all
from tests.ops.strings.test_conversion import texts


def i64(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


INDICES, VALUES, SHAPE = i64([0, 1], [0, 3], [2, 0]), f32(1, 2, -3), i64(4, 4)
MATRIX = (INDICES, VALUES, SHAPE)
DENSE = np.zeros((4, 4), np.float32)
DENSE[tuple(INDICES.T)] = VALUES


def test_reorder():
    indices, values = run_all("SparseReorder", INDICES[::-1], VALUES[::-1], SHAPE)
    assert (indices.tolist(), values.tolist()) == (INDICES.tolist(), VALUES.tolist())


def test_reshape():
    indices, shape = run_all("SparseReshape", INDICES, SHAPE, i64(2, -1))
    assert (indices.tolist(), shape.tolist()) == ([[0, 1], [0, 3], [1, 0]], [2, 8])
    with pytest.raises(InvalidGraphError, match="do not fill"):
        run_all("SparseReshape", INDICES, SHAPE, i64(3, -1))


def test_fill_empty_rows():
    indices, values, empty, positions = run_all("SparseFillEmptyRows", *MATRIX, f32(9))
    assert indices.tolist() == [[0, 1], [0, 3], [1, 0], [2, 0], [3, 0]]
    assert values.tolist() == [1, 2, 9, -3, 9]
    assert empty.tolist() == [False, True, False, True]
    assert positions.tolist() == [0, 1, 3]


def test_slice():
    indices, values, shape = run_all("SparseSlice", *MATRIX, i64(0, 1), i64(2, 9))
    assert (indices.tolist(), values.tolist()) == ([[0, 0], [0, 2]], [1, 2])
    assert shape.tolist() == [2, 3]


def test_concat():
    inputs = (INDICES, INDICES, VALUES, VALUES, SHAPE, SHAPE)
    indices, values, shape = run_all("SparseConcat", *inputs, concat_dim=-1, N=2)
    assert indices.tolist() == [[0, 1], [0, 3], [0, 5], [0, 7], [2, 0], [2, 4]]
    assert (values.tolist(), shape.tolist()) == ([1, 2, 1, 2, -3, -3], [4, 8])


@pytest.mark.parametrize(
    ("indices", "values", "shape"),
    [
        (i64([4, 0]), f32([1]), SHAPE),
        (i64([-1, 0]), f32([1]), SHAPE),
        (INDICES, VALUES[:2], SHAPE),
        (INDICES, VALUES, i64(4, 4, 4)),
        (INDICES, VALUES, i64(2**40, 2**40)),
    ],
)
def test_invalid_sparse_tensor_is_refused(indices, values, shape):
    with pytest.raises(InvalidGraphError):
        run_all("SparseReorder", indices, values, shape)


def test_reductions():
    assert run("SparseReduceSum", *MATRIX, i32([1])).tolist() == [3, 0, -3, 0]
    assert run("SparseReduceMax", *MATRIX, i32([0]), keep_dims=True).tolist() == [[-3, 1, 0, 2]]


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
def test_dense_mat_mul(turned):
    other = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)
    lhs, rhs = (x.T if t else x for x, t in zip((DENSE, other), turned, strict=True))
    attrs = {"adjoint_a": turned[0], "adjoint_b": turned[1]}
    result = run("SparseTensorDenseMatMul", *MATRIX, other, **attrs)
    np.testing.assert_allclose(result, lhs @ rhs, rtol=1e-6)


def test_multiply_by_dense_tensor():
    assert run("SparseDenseCwiseMul", *MATRIX, f32(10, 20, 30, 40)).tolist() == [20, 80, -30]
    with pytest.raises(InvalidGraphError):
        run("SparseDenseCwiseMul", *MATRIX, np.ones((2, 4, 4), np.float32))


def test_softmax():
    result = run("SparseSoftmax", *MATRIX)
    np.testing.assert_allclose(result, [1 / (1 + np.e), np.e / (1 + np.e), 1], rtol=1e-6)


@pytest.mark.parametrize(("kind", "divisor"), [("Sum", 1), ("Mean", 2), ("SqrtN", np.sqrt(2))])
def test_segment_reductions(kind, divisor):
    x = f32([[1, 2], [3, 4], [5, 6]])
    result = run(f"SparseSegment{kind}", x, i32(2, 0, 1), i32(0, 0, 2))
    np.testing.assert_allclose(result, [[6 / divisor, 8 / divisor], [0, 0], [3, 4]], rtol=1e-6)
    numbered = (x, i32(2, 0, 1), i32(0, 0, 2), i32(4))
    longer = run(f"SparseSegment{kind}WithNumSegments", *numbered)
    np.testing.assert_allclose(longer, [*result, [0, 0]], rtol=1e-6)


def test_invalid_segments_are_refused():
    with pytest.raises(InvalidGraphError, match="ascending"):
        run("SparseSegmentSum", f32([[1]]), i32(0, 0), i32(1, 0))
    with pytest.raises(InvalidGraphError, match="index 1 is not in"):
        run("SparseSegmentSum", f32([[1]]), i32([1]), i32([0]))


CROSS: dict[str, Any] = {
    "N": 1,
    "num_buckets": 100,
    "hash_key": 956888297470,
    "sparse_types": (DType.INT64,),
    "dense_types": (DType.STRING,),
    "out_type": DType.INT64,
    "internal_type": DType.INT64,
}


def test_cross():
    inputs = (i64([0, 0], [0, 1]), i64(3, 4), i64(2, 2), texts("a", "b").reshape(2, 1))
    indices, values, shape = run_all("SparseCross", *inputs, **CROSS, hashed_output=True)
    assert (indices.tolist(), shape.tolist()) == ([[0, 0], [0, 1]], [2, 2])
    assert values.tolist() == [52, 25]
    with pytest.raises(UnsupportedError, match="joins strings"):
        run_all("SparseCross", *inputs, **CROSS, hashed_output=False)


def test_sparse_shape_fits_int64() -> None:
    most = 2**63 - 1
    one = np.zeros(1)
    for dims in ([most], [7, most // 7]):
        place = np.zeros((1, len(dims)), np.int64)
        assert sparse_shape(place, i64(*dims), one) == tuple(dims)
    for dims in ([2**62, 2], [2**32, 2**31], [-1], [2, -1]):
        with pytest.raises(ValueError, match="is not a shape"):
            sparse_shape(np.zeros((0, len(dims)), np.int64), i64(*dims))


def test_row_major_order() -> None:
    assert flat_places(i64([0, 1, 2], [1, 0, 3], [1, 2, 0]), (2, 3, 4)).tolist() == [6, 15, 20]
    assert in_order(i64([1, 0], [0, 5], [1, 0], [0, 2])).tolist() == [3, 1, 0, 2]
    assert in_order(np.zeros((3, 0), np.int64)).tolist() == [0, 1, 2]


REDUCED = ("SparseReduceMax", "SparseReduceSum")
ELEMENTWISE = ("SparseDenseCwiseAdd", "SparseDenseCwiseDiv", "SparseDenseCwiseMul")

OP_CASES = [
    *(case(op, [(4, 2), (4,), [5, 6], [1]], [(5,)], 4) for op in REDUCED),
    case("SparseReduceSum", [(4, 2), (4,), [5, 6], [-1]], [(5, 1)], 4, keep_dims=True),
    case("SparseReduceSum", [(4, 2), (4,), [5, 6], (1,)], [None], 4),
    case("SparseReduceSum", [(4, 2), (-1,), (2,), [1]], [None], None),
    unlike(refused("SparseReduceSum", [(4, 2), (4,), [5, 6], [2]])),
    case("SparseTensorDenseMatMul", [(4, 2), (4,), [5, 6], (6, 7)], [(5, 7)], 56),
    case(
        "SparseTensorDenseMatMul",
        [(4, 2), (4,), [5, 6], (7, 5)],
        [(6, 7)],
        56,
        adjoint_a=True,
        adjoint_b=True,
    ),
    case("SparseTensorDenseMatMul", [(4, 2), (4,), (2,), (6, 7)], [(-1, 7)], None),
    refused("SparseTensorDenseMatMul", [(4, 2), (4,), [5, 6], (5, 7)]),
    *(case(op, [(4, 2), (4,), (2,), (5, 6)], [(4,)], 4) for op in ELEMENTWISE),
    unlike(case("SparseDenseCwiseAdd", [None, (4,), (2,), (5, 6)], [(-1,)], 4)),
    unlike(refused("SparseDenseCwiseAdd", [(4,), (4,), (2,), (5, 6)])),
    case("SparseSoftmax", [(4, 2), (4,), (2,)], [(4,)], 20),
    case("SparseSoftmax", [(-1, 2), (-1,), (2,)], [(-1,)], None),
    refused("SparseSoftmax", [(4, 2), (4, 1), (2,)]),
]


OP_CASES += [
    case("SparseReorder", [(4, 2), (4,), (2,)], [(4, 2), (4,)]),
    unlike(case("SparseReshape", [(4, 2), (2,), (3,)], [(4, 3), (3,)])),
    unlike(case("SparseReshape", [None, (2,), (3,)], [(-1, 3), (3,)])),
    refused("SparseReshape", [(4, 2), (2,), (3, 1)]),
    case("SparseFillEmptyRows", [(4, 2), (4,), [5, 6], 0.0], [(-1, 2), (-1,), (5,), (4,)]),
    unlike(case("SparseFillEmptyRows", [(-1, 2), (4,), (2,), 0.0], [(-1, 2), (-1,), (-1,), (-1,)])),
    refused("SparseFillEmptyRows", [(4,), (4,), (2,), 0.0]),
    case("SparseSlice", [(4, 2), (4,), (2,), (2,), (2,)], [(-1, 2), (-1,), (2,)]),
    unlike(refused("SparseSlice", [(4, 2), (4,), (2, 1), (2,), (2,)])),
    case(
        "SparseConcat", [(4, 2), (5, 2), (4,), (5,), (2,), (2,)], [(9, 2), (9,), (2,)], concat_dim=0
    ),
    case(
        "SparseConcat",
        [(4, -1), (-1, 2), (4,), (5,), (-1,), (2,)],
        [(9, 2), (9,), (2,)],
        concat_dim=0,
    ),
    case(
        "SparseConcat", [(4, 2), None, (4,), None, (2,), (2,)], [(-1, 2), (-1,), (2,)], concat_dim=0
    ),
    refused("SparseConcat", [(4, 2), (5, 3), (4,), (5,), (2,), (2,)], concat_dim=0),
    refused("SparseConcat", [(4, 2), (5, 2), (3,), (5,), (2,), (2,)], concat_dim=0),
    refused("SparseConcat", [(4, 2), (5, 2), (4,), (5,), (2,), (3,)], concat_dim=0),
    refused("SparseConcat", [(4,), (5, 2), (4,), (5,), (2,), (2,)], concat_dim=0),
]


OP_CASES += [
    case("SparseSegmentSum", [(7, 3), (4,), (4,)], [(-1, 3)], 12),
    case("SparseSegmentSumWithNumSegments", [(7, 3), (4,), (4,), 5], [(5, 3)], 12),
    case("SparseSegmentSumWithNumSegments", [(7, 3), (4,), (4,), ()], [(-1, 3)], 12),
    case("SparseSegmentSum", [(0, 3), (4,), (4,)], [(-1, 3)], 0),
    case("SparseSegmentSum", [None, (4,), (4,)], [None], None),
    refused("SparseSegmentSum", [(), (4,), (4,)]),
    case("SparseSegmentMean", [(7, 3), (4,), (4,)], [(-1, 3)], None),
    case("SparseSegmentSqrtN", [(7, 3), (4,), (4,)], [(-1, 3)], None),
    case("SparseSegmentMeanWithNumSegments", [(7, 3), (4,), (4,), 5], [(5, 3)], 27),
    case("SparseSegmentSqrtNWithNumSegments", [(7, 3), (4,), (4,), 5], [(5, 3)], 27),
    case("SparseSegmentSum", [(7,), (4,), (4,)], [(-1,)], 4),
]


OP_CASES += [
    case(
        "SparseCross",
        [(4, 2), (4,), (2,), (3, 5)],
        [(-1, 2), (-1,), (2,)],
        N=1,
        hashed_output=True,
        num_buckets=7,
        hash_key=1,
        sparse_types=(DType.INT64,),
        dense_types=(DType.INT64,),
        out_type=DType.INT64,
        internal_type=DType.INT64,
    ),
]


test_shapes_and_costs = case_tests(OP_CASES)
