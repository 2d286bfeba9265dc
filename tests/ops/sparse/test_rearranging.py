"""Shapes and costs of ops that rearrange sparse tensors."""

from __future__ import annotations

from tests.ops.cases import case, case_tests, refused, unlike

OP_CASES = [
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

test_shapes_and_costs = case_tests(OP_CASES)
