"""Shapes and costs of DecodeWav."""

from __future__ import annotations

from tests.ops.cases import case_tests, cost, shapes

SHAPES = [
    shapes("DecodeWav", [()], [(-1, -1), ()]),
    shapes("DecodeWav", [()], [(16000, 2), ()], desired_samples=16000, desired_channels=2),
]

COSTS = [cost("DecodeWav", [()], [(16000, 2), ()], 0)]

test_shapes_and_costs = case_tests(SHAPES, COSTS)
