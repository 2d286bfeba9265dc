"""Shapes and costs of the decoding of sequences."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

SHAPES = [
    shapes("CTCGreedyDecoder", [(7, 3, 5), (3,)], [(-1, 2), (-1,), (2,), (3, 1)]),
    shapes("CTCGreedyDecoder", [(7, -1, 5), (3,)], [(-1, 2), (-1,), (2,), (3, 1)]),
    shapes("CTCGreedyDecoder", [(7, 3, 5), None], [(-1, 2), (-1,), (2,), (3, 1)]),
    shapes("CTCGreedyDecoder", [(7, 3, 5), (4,)], None),
    shapes("CTCGreedyDecoder", [(7, 3), (3,)], None),
    shapes("CTCGreedyDecoder", [(7, 3, 5), (3, 1)], None),
]

COSTS = [cost("CTCGreedyDecoder", [(7, 3, 5), (3,)], [(-1, 2), (-1,), (2,), (3, 1)], 105)]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
