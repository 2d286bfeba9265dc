"""Matrix products and Einsum."""

from __future__ import annotations

from mobileprep.formats.dtypes import DType
from tests.ops.cases import case, case_tests, cost, refused, unlike

F = DType.FLOAT

OP_CASES = [
    case("MatMul", [(2, 3), (3, 5)], [(2, 5)], 60),
    case("MatMul", [(3, 2), (5, 3)], [(2, 5)], 60, transpose_a=True, transpose_b=True),
    case("MatMul", [(-1, 3), (3, 5)], [(-1, 5)], None),
    case("MatMul", [None, (3, 5)], [(-1, 5)], None),
    refused("MatMul", [(2, 3), (4, 5)]),
    refused("MatMul", [(2, 3), (3, 5)], transpose_a=True),
    refused("MatMul", [(1, 2, 3), (3, 5)]),
    case("SparseMatMul", [(2, 3), (3, 5)], [(2, 5)]),
    case("BatchMatMul", [(4, 2, 3), (4, 3, 5)], [(4, 2, 5)], 240),
    case("BatchMatMul", [(4, 3, 2), (-1, 5, 3)], [(4, 2, 5)], 240, adj_x=True, adj_y=True),
    unlike(case("BatchMatMul", [(4, 2, 3), None], [(4, 2, -1)], None)),
    refused("BatchMatMul", [(4, 2, 3), (1, 3, 5)]),
    refused("BatchMatMul", [(2,), (2, 3)]),
    case("BatchMatMulV2", [(4, 2, 3), (3, 5)], [(4, 2, 5)], 240),
    case("BatchMatMulV2", [(4, 3, 2), (7, 1, 3, 5)], [(7, 4, 2, 5)], 1680, adj_x=True),
    case("BatchMatMulV2", [None, (3, 5)], [None], None),
    refused("BatchMatMulV2", [(4, 2, 3), (4, 5)]),
    case("BatchMatMulV3", [(2, 3), (3, 5)], [(2, 5)], 60, Ta=F, Tb=F, Tout=F),
    unlike(case("BatchMatMulV2", [(2, 3), None], [None], None)),
]


OP_CASES += [
    case("Einsum", [(2, 3), (3, 5)], [(2, 5)], 60, equation="ab,bc->ac"),
    unlike(case("Einsum", [(2, 3)], [(3, 2)], 0, equation="ab -> ba")),
    case("Einsum", [(2, 3)], [(2,)], 4, equation="ab->a"),
    case("Einsum", [(-1, 3), (3, 5)], [(-1, 5)], None, equation="ab,bc->ac"),
    case("Einsum", [None, (3, 5)], [(-1, 5)], None, equation="ab,bc->ac"),
    unlike(case("Einsum", [(2, 3), (3, 5)], [None], None, equation="...b,bc->...c")),
    refused("Einsum", [(2, 3), (4, 5)], equation="ab,bc->ac"),
    refused("Einsum", [(2, 3, 4), (4, 5)], equation="ab,bc->ac"),
]


def test_invalid_equation_has_no_cost() -> None:
    cost("Einsum", [(2, 3, 4), (4, 5)], [(2, 5)], None, equation="ab,bc->ac").check()


test_shapes_and_costs = case_tests(OP_CASES)
