"""Shapes and costs of joining and reshaping quantized tensors."""

from __future__ import annotations

import pytest

from tests.ops.cases import CostCase, OpCase, cost, shapes

PAIR, ENDS = [(2, 3), (2, 4)], [(), (), (), ()]

SHAPES = [
    shapes("QuantizedConcat", [1, *PAIR, *ENDS], [(2, 7), (), ()], N=2),
    shapes("QuantizedConcat", [(), *PAIR, *ENDS], [(-1, -1), (), ()], N=2),
    shapes("QuantizedConcat", [0, *PAIR, *ENDS], None, N=2),
    shapes("QuantizedConcatV2", [*PAIR, 1, *ENDS], [(2, 7), (), ()], N=2),
    shapes("QuantizedConcatV2", [*PAIR, -1, *ENDS], [(2, 7), (), ()], N=2),
    shapes("QuantizedConcatV2", [*PAIR, 0, *ENDS], None, N=2),
    shapes("QuantizedReshape", [(2, 6), [3, -1], (), ()], [(3, 4), (), ()]),
    shapes("QuantizedReshape", [(2, 6), [5, -1], (), ()], None),
]

COSTS = [
    cost("QuantizedConcat", [(), *PAIR, *ENDS], [(2, 7), (), ()], 0, N=2),
    cost("QuantizedConcatV2", [*PAIR, (), *ENDS], [(2, 7), (), ()], 0, N=2),
    cost("QuantizedReshape", [(2, 6), (2,), (), ()], [(3, 4), (), ()], 0),
]


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()
