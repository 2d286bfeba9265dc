"""Shapes and costs of quantized normalization."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

INSTANCE, BATCH = "QuantizedInstanceNorm", "QuantizedBatchNormWithGlobalNormalization"
ATTRS = {"variance_epsilon": 0.001, "scale_after_normalization": True}


def statistics(image: tuple[int, ...], *lengths: int) -> list[tuple[int, ...]]:
    """The image and four vectors, each followed by both ends of its range."""
    return [t for tensor in (image, *((n,) for n in lengths)) for t in (tensor, (), ())]


SHAPES = [
    shapes(INSTANCE, [(4, 9, -1, 3), (), ()], [(4, 9, -1, 3), (), ()]),
    shapes(BATCH, statistics((4, 9, 8, -1), 3, 3, 3, 3), [(4, 9, 8, 3), (), ()], **ATTRS),
    *(
        shapes(BATCH, statistics((4, 9, 8, -1), *lengths), [(4, 9, 8, 3), (), ()], **ATTRS)
        for lengths in ((3, -1, -1, -1), (-1, 3, -1, -1), (-1, -1, 3, -1), (-1, -1, -1, 3))
    ),
    shapes(BATCH, statistics((4, 9, 8, 3), 3, 3, 3, 2), None, **ATTRS),
    shapes(BATCH, statistics((9, 8, 3), 3, 3, 3, 3), None, **ATTRS),
]

COSTS = [
    cost(INSTANCE, [(1, 2, 5, 3), (), ()], [(1, 2, 5, 3), (), ()], 6 * 30),
    cost(BATCH, statistics((1, 2, 5, 3), 3, 3, 3, 3), [(1, 2, 5, 3), (), ()], 2 * 30),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
