"""Small inputs that request huge results are refused before allocation."""

from __future__ import annotations

import resource
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.graphs import f32, i32, run_all

HUGE = 2**31 - 1
LONG = np.broadcast_to(np.float32(1), (1 << 17,))
WINDOW: dict[str, Any] = {"strides": [1, 1, 1, 1], "padding": "SAME"}
PADDED = {
    "strides": [1, 1, 1, 1],
    "padding": "EXPLICIT",
    "explicit_paddings": [0, 0, 1 << 20, 0, 1 << 20, 0, 0, 0],
}
PIXEL = np.ones((1, 1, 1, 1), np.float32)

CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "sum": ("Add", (LONG.reshape(-1, 1), LONG), {}),
    "difference": ("SquaredDifference", (LONG.reshape(-1, 1), LONG), {}),
    "equality": ("Equal", (LONG.reshape(-1, 1), LONG), {}),
    "choice": ("SelectV2", (LONG.reshape(-1, 1) > 0, LONG, f32(0)), {}),
    "product": ("MatMul", (LONG.reshape(-1, 1), LONG.reshape(1, -1)), {}),
    "products": ("BatchMatMulV2", (LONG.reshape(-1, 1), LONG.reshape(1, -1)), {}),
    "labels": ("Einsum", (LONG, LONG), {"equation": "i,j->ij"}),
    "fill": ("Fill", (i32(HUGE, HUGE), f32(0)), {}),
    "range": ("Range", (np.int64(0), np.int64(2**60), np.int64(1)), {}),
    "space": ("LinSpace", (f32(0), f32(1), i32(HUGE)), {}),
    "repetition": ("Tile", (f32([1]), i32([HUGE])), {}),
    "broadcast": ("BroadcastTo", (f32([1]), i32(HUGE, HUGE)), {}),
    "border": ("Pad", (f32([1]), i32([[HUGE, HUGE]])), {}),
    "places": ("OneHot", (i32(0, 1), i32(HUGE), f32(1), f32(0)), {}),
    "scatter": ("ScatterNd", (i32([[0]]), f32([1]), i32([HUGE])), {}),
    "stitch": ("DynamicStitch", (i32([HUGE - 1]), f32([1])), {"N": 1}),
    "segments": ("UnsortedSegmentSum", (f32([1]), i32([0]), i32(HUGE)), {}),
    "bins": ("Bincount", (i32([0]), i32(HUGE), f32([1])), {}),
    "sparse": ("SparseToDense", (i32([0]), i32([HUGE]), f32([1]), f32(0)), {}),
    "diagonal": ("MatrixDiag", (LONG,), {}),
    "blocks": ("SpaceToBatchND", (PIXEL, i32([1]), i32([[0, HUGE]])), {}),
    "parts": ("Split", (i32(0), np.zeros((0, 2), np.float32)), {"num_split": HUGE}),
    "partitions": ("DynamicPartition", (f32([1]), i32([0])), {"num_partitions": HUGE}),
    "slices": ("Unpack", (np.zeros((1 << 40, 0), np.float32),), {"num": 1 << 40}),
    "convolution": ("Conv2D", (PIXEL, PIXEL), PADDED),
    "depthwise": ("DepthwiseConv2dNative", (PIXEL, PIXEL), PADDED),
    "pool": ("MaxPool", (PIXEL,), {**PADDED, "ksize": [1, 1, 1, 1]}),
    "window": ("MaxPool", (PIXEL,), {**WINDOW, "ksize": [1, HUGE, HUGE, 1]}),
    "transposed": (
        "Conv2DBackpropInput",
        (i32(1, HUGE, HUGE, 1), PIXEL, PIXEL),
        {"strides": [1, HUGE, HUGE, 1], "padding": "SAME"},
    ),
    "spectrum": ("RFFT", (f32([1]), i32([HUGE])), {"Tcomplex": np.complex64}),
    "list": ("TensorListReserve", (i32([1]), i32(HUGE)), {"element_dtype": np.float32}),
    "steps": ("CTCGreedyDecoder", (np.ones((1, 1, 2), np.float32), i32([HUGE])), {}),
}


@pytest.mark.parametrize("name", CASES)
def test_huge_result_is_refused(name: str) -> None:
    op, inputs, attrs = CASES[name]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidGraphError, match=rf"node 'y' \({op}\)"):
        run_all(op, *inputs, **attrs)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 256 << 10, "in KB"
