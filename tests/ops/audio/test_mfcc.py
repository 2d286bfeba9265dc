"""Shapes and costs of Mfcc."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

SHAPES = [
    shapes("Mfcc", [(2, 98, 257), ()], [(2, 98, 13)]),
    shapes("Mfcc", [(-1, 98, 257), ()], [(-1, 98, 20)], dct_coefficient_count=20),
    shapes("Mfcc", [None, ()], [(-1, -1, 13)]),
    shapes("Mfcc", [(98, 257), ()], None),
]

COSTS = [
    # 5 for each of 9 frequencies, 40 logarithms, and 13 sums of 40 products
    cost("Mfcc", [(2, 3, 9), ()], [(2, 3, 13)], 6 * (45 + 40 + 1040)),
    cost(
        "Mfcc",
        [(2, 3, 9), ()],
        [(2, 3, 4)],
        6 * (45 + 10 + 80),
        filterbank_channel_count=10,
        dct_coefficient_count=4,
    ),
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)
