"""Arithmetic on sparse tensors."""

from __future__ import annotations

from tests.ops.cases import case, case_tests, refused, unlike

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

test_shapes_and_costs = case_tests(OP_CASES)
