"""Quantized normalization."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32
from tests.ops.quantized_graphs import run_quantized

INSTANCE, BATCH = "QuantizedInstanceNorm", "QuantizedBatchNormWithGlobalNormalization"
ATTRS = {"variance_epsilon": 0.001, "scale_after_normalization": True}


def statistics(image: tuple[int, ...], *lengths: int) -> list[tuple[int, ...]]:
    """Shapes of the image and four vectors, each with its range ends."""
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

test_shapes_and_costs = case_tests(SHAPES, COSTS)


def instance(x: list[int], **attrs: Any) -> tuple[list[int], float, float]:
    """A normalized row of bytes with one channel and a range of 0 to 255."""
    image = np.uint8(x).reshape(1, 1, -1, 1)
    options = {"variance_epsilon": 0.0, **attrs}
    out, low, high = run_quantized(INSTANCE, image, f32(0), f32(255), T=DType.QUINT8, **options)
    return out.ravel().tolist(), float(low), float(high)


def test_instance_norm() -> None:
    # Mean and deviation are both 127.5: the ends become -1 and 1.
    assert instance([0, 255]) == ([0, 255], -1, 1)
    # A constant image has no deviation; its range has the minimum width.
    result, low, high = instance([9, 9], variance_epsilon=1.0, min_separation=0.5)
    assert (result, low, high) == ([0, 0], 0, 0.5)


def test_instance_norm_with_output_range() -> None:
    options = {"output_range_given": True, "given_y_min": -2.0, "given_y_max": 2.0}
    # -1 and 1 are at 63.75 and 191.25 of 255 steps; TensorFlow counts 256 of them.
    assert instance([0, 255], **options) == ([64, 192], -2, 2)
    for end in (-2.0, -3.0):
        with pytest.raises(InvalidGraphError, match="'y'"):
            instance([0, 255], **{**options, "given_y_max": end})


@pytest.mark.parametrize(("scaled", "expected"), [(True, [23, 53]), (False, [8, 13])])
def test_batch_norm(scaled: bool, expected: list[int]) -> None:
    # (x - 4) / sqrt(3 + 1), times 6 where scaled, plus 5; 1 is 2048.
    byte = (f32(0), f32(255))
    vectors = [v for n in (4, 3, 5, 6) for v in (np.uint8([n, n]), *byte)]
    attrs = {"Tinput": DType.QUINT8, "out_type": DType.QINT32, "variance_epsilon": 1.0}
    out, low, high = run_quantized(
        BATCH,
        np.uint8([10, 20]).reshape(1, 1, 1, 2),
        *byte,
        *vectors,
        **attrs,
        scale_after_normalization=scaled,
    )
    assert out.ravel().tolist() == [n * 2048 for n in expected]
    assert (float(low), float(high)) == (-(2.0**20), 2.0**20)
