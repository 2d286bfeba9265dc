"""Shapes and costs of fake quantization."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

FAKE = "FakeQuantWithMinMax"
CHANNELS = f"{FAKE}VarsPerChannel"

SHAPES = [
    shapes(f"{FAKE}Args", [(2, -1)], [(2, -1)]),
    shapes(f"{FAKE}ArgsGradient", [(2, -1), (2, -1)], [(2, -1)]),
    shapes(f"{FAKE}Vars", [(2, -1), (), ()], [(2, -1)]),
    shapes(CHANNELS, [(2, -1), (3,), (-1,)], [(2, -1)]),
    shapes(CHANNELS, [(2, -1), (-1,), (3,)], [(2, -1)]),
    shapes(CHANNELS, [(3,), (3,), (3,)], [(3,)]),
    shapes(CHANNELS, [(2, 5, 3), (3,), (3,)], [(2, 5, 3)]),
    shapes(CHANNELS, [(2, 3), None, None], [(2, 3)]),
    shapes(CHANNELS, [None, (3,), (3,)], [None]),
    shapes(CHANNELS, [(2, 4), (3,), (-1,)], None),
    shapes(CHANNELS, [(2, 4), (-1,), (3,)], None),
    shapes(CHANNELS, [(), (3,), (3,)], None),
    shapes(CHANNELS, [(2, 3), (), ()], None),
]

COSTS = [
    cost(f"{FAKE}Args", [(2, 3)], [(2, 3)], 42),
    cost(f"{FAKE}Vars", [(2, 3), (), ()], [(2, 3)], 42),
    cost(CHANNELS, [(2, 3), (3,), (3,)], [(2, 3)], 42),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
