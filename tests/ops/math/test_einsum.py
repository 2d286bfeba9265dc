"""Einsum."""

from __future__ import annotations

from tests.ops.cases import case, case_tests, cost, refused, unlike

OP_CASES = [
    case("Einsum", [(2, 3), (3, 5)], [(2, 5)], 60, equation="ab,bc->ac"),
    unlike(case("Einsum", [(2, 3)], [(3, 2)], 0, equation="ab -> ba")),
    case("Einsum", [(2, 3)], [(2,)], 4, equation="ab->a"),
    case("Einsum", [(-1, 3), (3, 5)], [(-1, 5)], None, equation="ab,bc->ac"),
    case("Einsum", [None, (3, 5)], [(-1, 5)], None, equation="ab,bc->ac"),
    unlike(case("Einsum", [(2, 3), (3, 5)], [None], None, equation="...b,bc->...c")),
    refused("Einsum", [(2, 3), (4, 5)], equation="ab,bc->ac"),
    refused("Einsum", [(2, 3, 4), (4, 5)], equation="ab,bc->ac"),
]

test_shapes_and_costs = case_tests(OP_CASES)


def test_invalid_equation_has_no_cost() -> None:
    cost("Einsum", [(2, 3, 4), (4, 5)], [(2, 5)], None, equation="ab,bc->ac").check()
