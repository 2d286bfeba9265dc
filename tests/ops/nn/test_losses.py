"""Shapes and costs of cross entropies."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

DENSE, SPARSE = "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"

SHAPES = [
    shapes(DENSE, [(4, 10), (4, 10)], [(4,), (4, 10)]),
    shapes(DENSE, [(4, -1), (-1, 10)], [(4,), (4, 10)]),
    shapes(DENSE, [(4, 10), (1, 10)], [(4,), (4, 10)]),
    shapes(DENSE, [(4, 10), None], [(4,), (4, 10)]),
    shapes(DENSE, [None, (4, 10)], [(4,), (4, 10)]),
    shapes(DENSE, [None, None], [(-1,), (-1, -1)]),
    shapes(DENSE, [(4, 10), (4, 9)], None),
    shapes(DENSE, [(2, 4, 10), (2, 4, 10)], None),
    shapes(SPARSE, [(4, 10), (4,)], [(4,), (4, 10)]),
    shapes(SPARSE, [(-1, 10), (4,)], [(4,), (4, 10)]),
    shapes(SPARSE, [(4, 10), None], [(4,), (4, 10)]),
    shapes(SPARSE, [(4, 10), (5,)], None),
    shapes(SPARSE, [(4, 10), (4, 1)], None),
    shapes(SPARSE, [(10,), (4,)], None),
]

COSTS = [
    cost(DENSE, [(4, 10), (4, 10)], [(4,), (4, 10)], 320),
    cost(SPARSE, [(4, 10), (4,)], [(4,), (4, 10)], 320),
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)
