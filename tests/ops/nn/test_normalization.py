"""Normalization ops."""

from __future__ import annotations

import numpy as np

from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import run_all

FUSED = ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"]
V3, OLD = FUSED[2], "BatchNormWithGlobalNormalization"
VECTORS = [(8,)] * 4
LAST = {"is_training": False}
GLOBAL = {"variance_epsilon": 0.001, "scale_after_normalization": True}

SHAPES = [
    *(shapes(op, [(4, 9, 8, -1), *VECTORS], [(4, 9, 8, 8), *VECTORS]) for op in FUSED[:2]),
    shapes(V3, [(4, 9, 8, -1), *VECTORS], [(4, 9, 8, 8), *VECTORS, None]),
    shapes(V3, [None, (8,), (-1,), (0,), (0,)], [(-1, -1, -1, 8), *VECTORS, None]),
    shapes(V3, [(4, -1, 9, 8), *VECTORS], [(4, 8, 9, 8), *VECTORS, None], data_format="NCHW"),
    shapes(V3, [(4, 9, 8, 7, 8), *VECTORS], [(4, 9, 8, 7, 8), *VECTORS, None], data_format="NDHWC"),
    shapes(V3, [(4, 8, 9, 8, 7), *VECTORS], [(4, 8, 9, 8, 7), *VECTORS, None], data_format="NCDHW"),
    shapes(V3, [(4, 9, 8, 8, 8), *VECTORS], None),
    shapes(V3, [(4, 9, 8, 7), *VECTORS], None),
    shapes(V3, [(4, 9, 8, 8), (8,), (7,), (0,), (0,)], None),
    # In training, statistics are outputs; in inference they are inputs and must match.
    shapes(V3, [(4, 9, 8, 8), (8,), (8,), (0,), (0,)], [(4, 9, 8, 8), *VECTORS, None]),
    shapes(V3, [(4, 9, 8, 8), (8,), (8,), (7,), (8,)], None, **LAST),
    shapes(V3, [(4, 9, 8, 8), (8,), (8,), (8,), (7,)], None, **LAST),
    shapes(V3, [(4, 9, 8, -1), (-1,), (-1,), (-1,), (8,)], [(4, 9, 8, 8), *VECTORS, None], **LAST),
    shapes(OLD, [(4, 9, 8, -1), *VECTORS], [(4, 9, 8, 8)], **GLOBAL),
    shapes(OLD, [(4, 9, 8, -1), (-1,), (-1,), (-1,), (8,)], [(4, 9, 8, 8)], **GLOBAL),
    shapes(OLD, [(4, 9, 8, 8), (7,), (8,), (8,), (8,)], None, **GLOBAL),
    shapes(OLD, [(9, 8, 8), *VECTORS], None, **GLOBAL),
    shapes(OLD, [(4, 9, 8, 8), (8, 1), (8,), (8,), (8,)], None, **GLOBAL),
    shapes("LRN", [(4, 9, 8, 3)], [(4, 9, 8, 3)]),
    shapes("LRN", [None], [(-1, -1, -1, -1)]),
    shapes("LRN", [(9, 8, 3)], None),
]

COSTS = [
    *(cost(op, [(1, 2, 5, 8)], [(1, 2, 5, 8)], 160, **LAST) for op in FUSED),
    *(cost(op, [(1, 2, 5, 8)], [(1, 2, 5, 8)], 480) for op in FUSED),
    cost(OLD, [(1, 2, 5, 8)], [(1, 2, 5, 8)], 160),
    # a sum of squares over the window, and five more
    cost("LRN", [(1, 2, 5, 8)], [(1, 2, 5, 8)], 80 * (2 * 5 + 5)),
    cost("LRN", [(1, 2, 5, 8)], [(1, 2, 5, 8)], 80 * (2 * 2 + 5), depth_radius=2),
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)


def test_batch_norm_of_empty_batch_is_nan_without_warning() -> None:
    ones, none = np.ones(3, np.float32), np.zeros(0, np.float32)
    empty = np.zeros((0, 2, 2, 3), np.float32)
    out, mean, *_ = run_all("FusedBatchNormV3", empty, ones, ones, none, none, U=np.float32)
    assert out.shape == empty.shape
    assert np.isnan(mean).all()
