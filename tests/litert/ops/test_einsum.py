"""Einsum, as products of matrices between transpositions."""

from __future__ import annotations

import pytest

from mobileprep.errors import UnsupportedError
from tests.litert.one_op import check, numbers

SIZES = {"a": 2, "b": 3, "c": 4, "d": 5, "e": 6, "f": 2}


def operands(equation: str) -> list[object]:
    terms = equation.partition("->")[0].replace("...", "ef").split(",")
    return [numbers(*(SIZES[c] for c in t), seed=i) for i, t in enumerate(terms)]


@pytest.mark.parametrize(
    "equation",
    [
        *("ab,bc->ac", "ab,cb->ca", "abc,acd->abd", "abcd,aecd->acbe", "abc,cde->abde"),
        *("abcd,acde->abce", "ab,ab->a", "ab,cd->acbd", "a,b->ab", "abc,abd->dca"),
        *("...ab,bc->...ac", "a...,...b->...ab", "abc,ad->bd", "abc->cab", "abc->b", "...a->..."),
    ],
)
@pytest.mark.parametrize("fixed", [False, True])
def test_equations(equation: str, fixed: bool) -> None:
    given = operands(equation)
    constant = [1] if fixed and len(given) == 2 else []
    check("Einsum", given, constant=constant, equation=equation, N=len(given))


def test_a_dense_layer_is_one_operator_whatever_the_batch() -> None:
    given = operands("abc,cd->abd")
    found = check("Einsum", given, constant=[1], open_sizes=1, equation="abc,cd->abd", N=2)
    assert found.count("FULLY_CONNECTED") == 1
    assert "BATCH_MATMUL" not in found


def test_a_plain_product_of_batches_needs_nothing_else() -> None:
    equation = "abc,acd->abd"
    found = check("Einsum", operands(equation), open_sizes=1, equation=equation, N=2)
    assert found == ["BATCH_MATMUL"]


@pytest.mark.parametrize(
    ("equation", "why"), [("aa->a", "names a label twice"), ("ab,bc,cd->ad", "one or two operands")]
)
def test_what_is_no_product_is_refused(equation: str, why: str) -> None:
    sizes = {"a": 3, "b": 3, "c": 3, "d": 3}
    terms = equation.partition("->")[0].split(",")
    given = [numbers(*(sizes[c] for c in term)) for term in terms]
    with pytest.raises(UnsupportedError, match=why):
        check("Einsum", given, equation=equation, N=len(given))
