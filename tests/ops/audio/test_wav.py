"""Shapes and costs of sound files."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

SHAPES = [
    shapes("DecodeWav", [()], [(-1, -1), ()]),
    shapes("DecodeWav", [()], [(16000, 2), ()], desired_samples=16000, desired_channels=2),
]

COSTS = [cost("DecodeWav", [()], [(16000, 2), ()], 0)]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
