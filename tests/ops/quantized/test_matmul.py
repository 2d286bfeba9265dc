"""Shapes and costs of quantized matrix products."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

RANGES = [(), (), (), ()]
TURNED = {"transpose_a": True, "transpose_b": True}

SHAPES = [
    shapes("QuantizedMatMul", [(2, 3), (3, 4), *RANGES], [(2, 4), (), ()]),
    shapes("QuantizedMatMul", [(3, 2), (4, 3), *RANGES], [(2, 4), (), ()], **TURNED),
    shapes("QuantizedMatMul", [(2, 3), (5, 4), *RANGES], None),
]

COSTS = [
    cost("QuantizedMatMul", [(2, 3), (3, 4), *RANGES], [(2, 4), (), ()], 48),
    cost("QuantizedMatMul", [(3, 2), (4, 3), *RANGES], [(2, 4), (), ()], 48, **TURNED),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
