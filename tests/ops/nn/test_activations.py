"""Activations and softmax."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import run, run_all

EACH = {
    "Relu": 1,
    "Relu6": 2,
    "Elu": 2,
    "Softplus": 2,
    "LeakyRelu": 2,
    "Selu": 3,
    "Softsign": 3,
}
MERGED = ["Elu", "LeakyRelu", "Relu6", "Relu", "Selu", "Softplus", "Softsign"]

SHAPES = [
    *(shapes(op, [(2, -1)], [(2, -1)]) for op in EACH),
    *(shapes(op, [None], [None]) for op in EACH),
    *(shapes(op, [(2, 10)], [(2, 10)]) for op in ("Softmax", "LogSoftmax")),
    *(shapes(op, [(-1,)], [(-1,)]) for op in ("Softmax", "LogSoftmax")),
    *(shapes(op, [()], None) for op in ("Softmax", "LogSoftmax")),
    *(shapes(f"{op}Grad", [(2, -1), (-1, 3)], [(2, 3)]) for op in MERGED),
    *(shapes(f"{op}Grad", [(2, 3), (2, 4)], None) for op in MERGED),
    *(shapes(op, [(2, -1), (2, -1)], [(2, -1)]) for op in ("SigmoidGrad", "TanhGrad")),
]

COSTS = [
    *(cost(op, [(2, 3)], [(2, 3)], 6 * each) for op, each in EACH.items()),
    *(cost(op, [(2, 3)], [(2, 3)], 30) for op in ("Softmax", "LogSoftmax")),
    cost("Relu", [(2, -1)], [(2, -1)], None),
]


def test_softplus_of_large_bfloat16_is_finite() -> None:
    x = np.array([-100, 0, 100, 1000], ml_dtypes.bfloat16)
    assert run("Softplus", x).astype(np.float32).tolist() == [0, 0.69140625, 100, 1000]


def test_leaky_relu_default_slope_is_float32() -> None:
    assert run("LeakyRelu", np.array([-1.0])).tolist() == [-float(np.float32(0.2))]


DENSE, SPARSE = "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"

SHAPES += [
    shapes(DENSE, [(4, 10), (4, 10)], [(4,), (4, 10)]),
    shapes(DENSE, [(4, -1), (-1, 10)], [(4,), (4, 10)]),
    shapes(DENSE, [(4, 10), (1, 10)], [(4,), (4, 10)]),
    shapes(DENSE, [(4, 10), None], [(4,), (4, 10)]),
    shapes(DENSE, [None, (4, 10)], [(4,), (4, 10)]),
    shapes(DENSE, [None, None], [(-1,), (-1, -1)]),
    shapes(DENSE, [(4, 10), (4, 9)], None),
    shapes(DENSE, [(2, 4, 10), (2, 4, 10)], None),
    shapes(SPARSE, [(4, 10), (4,)], [(4,), (4, 10)]),
    shapes(SPARSE, [(-1, 10), (4,)], [(4,), (4, 10)]),
    shapes(SPARSE, [(4, 10), None], [(4,), (4, 10)]),
    shapes(SPARSE, [(4, 10), (5,)], None),
    shapes(SPARSE, [(4, 10), (4, 1)], None),
    shapes(SPARSE, [(10,), (4,)], None),
]

COSTS += [
    cost(DENSE, [(4, 10), (4, 10)], [(4,), (4, 10)], 320),
    cost(SPARSE, [(4, 10), (4,)], [(4,), (4, 10)], 320),
]


FUSED = ["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"]
V3, OLD = FUSED[2], "BatchNormWithGlobalNormalization"
VECTORS = [(8,)] * 4
LAST = {"is_training": False}
GLOBAL = {"variance_epsilon": 0.001, "scale_after_normalization": True}

SHAPES += [
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

COSTS += [
    *(cost(op, [(1, 2, 5, 8)], [(1, 2, 5, 8)], 160, **LAST) for op in FUSED),
    *(cost(op, [(1, 2, 5, 8)], [(1, 2, 5, 8)], 480) for op in FUSED),
    cost(OLD, [(1, 2, 5, 8)], [(1, 2, 5, 8)], 160),
    # a sum of squares over the window, and five more
    cost("LRN", [(1, 2, 5, 8)], [(1, 2, 5, 8)], 80 * (2 * 5 + 5)),
    cost("LRN", [(1, 2, 5, 8)], [(1, 2, 5, 8)], 80 * (2 * 2 + 5), depth_radius=2),
]


def test_batch_norm_of_empty_batch_is_nan_without_warning() -> None:
    ones, none = np.ones(3, np.float32), np.zeros(0, np.float32)
    empty = np.zeros((0, 2, 2, 3), np.float32)
    out, mean, *_ = run_all("FusedBatchNormV3", empty, ones, ones, none, none, U=np.float32)
    assert out.shape == empty.shape
    assert np.isnan(mean).all()


test_shapes_and_costs = case_tests(SHAPES, COSTS)
