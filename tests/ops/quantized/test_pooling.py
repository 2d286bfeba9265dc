"""Shapes and costs of quantized pooling."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

TWO = {"ksize": (1, 3, 2, 1), "strides": (1, 2, 3, 1), "padding": "VALID"}
POOLS = ["QuantizedMaxPool", "QuantizedAvgPool"]

SHAPES = [
    *(shapes(op, [(4, 9, 8, 3), (), ()], [(4, 4, 3, 3), (), ()], **TWO) for op in POOLS),
    *(shapes(op, [(9, 8, 3), (), ()], None, **TWO) for op in POOLS),
]

COSTS = [cost(op, [(4, 9, 8, 3), (), ()], [(4, 4, 3, 3), (), ()], 6 * 144, **TWO) for op in POOLS]

test_shapes_and_costs = case_tests(SHAPES, COSTS)
