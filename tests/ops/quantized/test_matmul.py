"""Shapes and costs of quantized matrix products."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

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

test_shapes_and_costs = case_tests(SHAPES, COSTS)
