"""Shapes and costs of activations and softmax."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

EACH = {
    "Relu": 1,
    "Relu6": 2,
    "Elu": 2,
    "Softplus": 2,
    "LeakyRelu": 2,
    "Selu": 3,
    "Softsign": 3,
}
MERGED = ["Elu", "LeakyRelu", "Relu6", "Relu", "Selu", "Softplus", "Softsign"]

SHAPES = [
    *(shapes(op, [(2, -1)], [(2, -1)]) for op in EACH),
    *(shapes(op, [None], [None]) for op in EACH),
    *(shapes(op, [(2, 10)], [(2, 10)]) for op in ("Softmax", "LogSoftmax")),
    *(shapes(op, [(-1,)], [(-1,)]) for op in ("Softmax", "LogSoftmax")),
    *(shapes(op, [()], None) for op in ("Softmax", "LogSoftmax")),
    *(shapes(f"{op}Grad", [(2, -1), (-1, 3)], [(2, 3)]) for op in MERGED),
    *(shapes(f"{op}Grad", [(2, 3), (2, 4)], None) for op in MERGED),
    *(shapes(op, [(2, -1), (2, -1)], [(2, -1)]) for op in ("SigmoidGrad", "TanhGrad")),
]

COSTS = [
    *(cost(op, [(2, 3)], [(2, 3)], 6 * each) for op, each in EACH.items()),
    *(cost(op, [(2, 3)], [(2, 3)], 30) for op in ("Softmax", "LogSoftmax")),
    cost("Relu", [(2, -1)], [(2, -1)], None),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
