"""QuantizedConcat and QuantizedReshape."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.dtypes import DType
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, i32
from tests.ops.quantized_graphs import run_quantized

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


def test_concat_uses_the_largest_range() -> None:
    # The ranges are 1, 1/2, and 1/5 of 0 to 255: their bytes count 1, 1/2, and 1/5.
    lows, highs = (f32(0),) * 3, (f32(255), f32(127.5), f32(51))
    parts = (np.uint8([[10]]), np.uint8([[20, 100]]), np.uint8([[50]]))
    attrs = {"T": DType.QUINT8, "N": 3}
    for outputs in (
        run_quantized("QuantizedConcat", i32(1), *parts, *lows, *highs, **attrs),
        run_quantized("QuantizedConcatV2", *parts, i32(1), *lows, *highs, **attrs),
    ):
        out, low, high = outputs
        assert out.tolist() == [[10, 10, 50, 10]]
        assert (float(low), float(high)) == (0, 255)


RESIZE = "QuantizedResizeBilinear"

SHAPES += [
    shapes(RESIZE, [(2, 4, 5, 3), [7, 8], (), ()], [(2, 7, 8, 3), (), ()]),
    shapes(RESIZE, [(4, 5, 3), [7, 8], (), ()], None),
]

COSTS += [cost(RESIZE, [(1, 4, 5, 3), (2,), (), ()], [(1, 7, 8, 3), (), ()], 9 * 168)]


test_shapes_and_costs = case_tests(SHAPES, COSTS)
