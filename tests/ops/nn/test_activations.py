"""Activations and softmax."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import run

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

test_shapes_and_costs = case_tests(SHAPES, COSTS)


def test_softplus_of_large_bfloat16_is_finite() -> None:
    x = np.array([-100, 0, 100, 1000], ml_dtypes.bfloat16)
    assert run("Softplus", x).astype(np.float32).tolist() == [0, 0.69140625, 100, 1000]


def test_leaky_relu_default_slope_is_float32() -> None:
    assert run("LeakyRelu", np.array([-1.0])).tolist() == [-float(np.float32(0.2))]
