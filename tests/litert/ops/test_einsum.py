"""Einsum as matrix products between transpositions."""

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
    inputs = operands(equation)
    constant = [1] if fixed and len(inputs) == 2 else []
    check("Einsum", inputs, constant=constant, equation=equation, N=len(inputs))


def test_dense_layer_of_any_batch_is_one_operator() -> None:
    inputs = operands("abc,cd->abd")
    operators = check("Einsum", inputs, constant=[1], open_sizes=1, equation="abc,cd->abd", N=2)
    assert operators.count("FULLY_CONNECTED") == 1
    assert "BATCH_MATMUL" not in operators


def test_batched_product_is_one_operator() -> None:
    equation = "abc,acd->abd"
    operators = check("Einsum", operands(equation), open_sizes=1, equation=equation, N=2)
    assert operators == ["BATCH_MATMUL"]


@pytest.mark.parametrize(
    ("equation", "error"),
    [("aa->a", "names a label twice"), ("ab,bc,cd->ad", "one or two operands")],
)
def test_unsupported_equation_is_refused(equation: str, error: str) -> None:
    sizes = {"a": 3, "b": 3, "c": 3, "d": 3}
    terms = equation.partition("->")[0].split(",")
    inputs = [numbers(*(sizes[c] for c in term)) for term in terms]
    with pytest.raises(UnsupportedError, match=error):
        check("Einsum", inputs, equation=equation, N=len(inputs))
