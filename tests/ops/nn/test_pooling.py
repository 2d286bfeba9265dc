"""Pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import run

TWO = {"ksize": (1, 3, 2, 1), "strides": (1, 2, 3, 1), "padding": "VALID"}
SAME = {**TWO, "padding": "SAME"}
FIRST = {
    "ksize": (1, 1, 3, 2),
    "strides": (1, 1, 2, 3),
    "padding": "VALID",
    "data_format": "NCHW",
}
DEEP = {"ksize": (1, 1, 1, 3), "strides": (1, 1, 1, 3), "padding": "VALID"}
CUBE = {"ksize": (1, 3, 2, 1, 1), "strides": (1, 2, 3, 1, 1), "padding": "VALID"}
CUBE_FIRST = {
    "ksize": (1, 1, 3, 2, 1),
    "strides": (1, 1, 2, 3, 1),
    "padding": "SAME",
    "data_format": "NCDHW",
}
PADDED = {**TWO, "padding": "EXPLICIT", "explicit_paddings": (0, 0, 1, 1, 1, 0, 0, 0)}
MAX, AVG = "MaxPool", "AvgPool"
CUBES = ["MaxPool3D", "AvgPool3D"]
V2 = "MaxPoolV2"

SHAPES = [
    # (9 - 3) / 2 + 1 rows, (8 - 2) / 3 + 1 columns
    *(shapes(op, [(4, 9, 8, 3)], [(4, 4, 3, 3)], **TWO) for op in (MAX, AVG)),
    *(shapes(op, [(4, 9, 8, 3)], [(4, 5, 3, 3)], **SAME) for op in (MAX, AVG)),
    *(shapes(op, [(4, 3, 9, 8)], [(4, 3, 4, 3)], **FIRST) for op in (MAX, AVG)),
    *(
        shapes(op, [(4, 9, 8, 7, 3)], [(4, 4, 3, 7, 3)], **CUBE)
        for op in ("MaxPool3D", "AvgPool3D")
    ),
    shapes("MaxPool3D", [(4, 3, 9, 8, 7)], [(4, 3, 5, 3, 7)], **CUBE_FIRST),
    shapes("AvgPool3D", [(4, 9, 8, 3)], None, **CUBE),
    shapes(MAX, [(4, 9, 8, 9)], [(4, 9, 8, 3)], **DEEP),
    # 9 + 2 rows, 8 + 1 columns
    shapes(MAX, [(4, 9, 8, 3)], [(4, 5, 3, 3)], **PADDED),
    shapes(MAX, [(-1, -1, 8, -1)], [(-1, -1, 3, -1)], **TWO),
    shapes(MAX, [None], [(-1, -1, -1, -1)], **TWO),
    shapes(MAX, [(9, 8, 3)], None, **TWO),
    shapes(MAX, [(4, 9, 8, 3)], None, **{**TWO, "ksize": (1, 3, 2)}),
    shapes(MAX, [(4, 9, 8, 3)], None, **{**TWO, "strides": (1, 3, 2)}),
    shapes(
        "MaxPoolV2", [(4, 9, 8, 3), [1, 3, 2, 1], [1, 2, 3, 1]], [(4, 4, 3, 3)], padding="VALID"
    ),
    shapes(V2, [(4, 9, 8, 3), (4,), [1, 2, 3, 1]], [None], padding="VALID"),
    shapes(V2, [(4, 9, 8, 3), [1, 3, 2, 1], (4,)], [None], padding="VALID"),
    shapes(V2, [(9, 8, 3), [1, 3, 2, 1], [1, 2, 3, 1]], None, padding="VALID"),
    shapes("MaxPoolGrad", [(4, 9, 8, 3), (4, 4, 3, 3), (4, 4, 3, 3)], [(4, 9, 8, 3)], **TWO),
    shapes("MaxPoolGrad", [(9, 8, 3), (4, 4, 3, 3), (4, 4, 3, 3)], None, **TWO),
    shapes("AvgPoolGrad", [[4, 9, 8, 3], (4, 4, 3, 3)], [(4, 9, 8, 3)], **TWO),
    shapes("AvgPoolGrad", [[4, 9, 8], (4, 4, 3, 3)], None, **TWO),
]

COSTS = [
    *(cost(op, [(4, 9, 8, 3)], [(4, 4, 3, 3)], 6 * 144, **TWO) for op in (MAX, AVG)),
    cost("MaxPool3D", [(4, 9, 8, 7, 3)], [(4, 4, 3, 7, 3)], 6 * 1008, **CUBE),
    cost("AvgPool3D", [(4, 9, 8, 7, 3)], [(4, 4, 3, 7, 3)], 6 * 1008, **CUBE),
    # The window is an input.
    cost(V2, [(4, 9, 8, 3), (4,), (4,)], [(4, 4, 3, 3)], None, padding="VALID"),
]


def test_max_pool_v2() -> None:
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 4, 1)
    sizes, strides = np.int32([1, 2, 2, 1]), np.int32([1, 1, 2, 1])
    result = run("MaxPoolV2", x, sizes, strides, padding="VALID")
    assert result[0, :, :, 0].tolist() == [[5, 7], [9, 11]]
    result = run("MaxPoolV2", x, sizes, strides, padding="SAME")
    assert result[0, :, :, 0].tolist() == [[5, 7], [9, 11], [9, 11]]


def test_pooling_along_channels() -> None:
    x = np.float32([[[[1, 5, 2, -3, 0, 4]]]])
    deep = {"ksize": [1, 1, 1, 3], "strides": [1, 1, 1, 3], "padding": "VALID"}
    assert run("MaxPool", x, **deep).tolist() == [[[[5, 4]]]]
    assert run("MaxPool", x, **{**deep, "padding": "SAME"}).tolist() == [[[[5, 4]]]]
    window = np.int32([1, 1, 1, 2])
    assert run("MaxPoolV2", x, window, window, padding="VALID").tolist() == [[[[5, 2, 4]]]]


@pytest.mark.parametrize(
    "change",
    [
        {"ksize": [1, 1, 1, 4], "strides": [1, 1, 1, 4]},
        {"strides": [1, 1, 1, 1]},
        {"ksize": [1, 2, 1, 3]},
        {"data_format": "NCHW", "ksize": [1, 3, 1, 1], "strides": [1, 3, 1, 1]},
    ],
)
def test_invalid_pooling_along_channels_is_refused(change: dict[str, Any]) -> None:
    deep = {"ksize": [1, 1, 1, 3], "strides": [1, 1, 1, 3], "padding": "VALID", **change}
    with pytest.raises(InvalidGraphError, match="channels"):
        run("MaxPool", np.zeros((1, 2, 2, 6), np.float32), **deep)


def test_avg_pool_ignores_padding() -> None:
    x = np.arange(9, dtype=np.float32).reshape(1, 3, 3, 1)
    window = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1]}
    result = run("AvgPool", x, **window, padding="SAME")
    assert result[0, :, :, 0].tolist() == [[2, 3.5], [6.5, 8]]
    assert run("AvgPool", x, **window, padding="VALID").ravel().tolist() == [2]
    assert run("MaxPool", -x, **window, padding="SAME")[0, :, :, 0].tolist() == [[0, -2], [-6, -8]]


SHAPES += [
    shapes("MaxPoolWithArgmax", [(4, 9, 8, 3)], [(4, 4, 3, 3)] * 2, **TWO),
    shapes("MaxPoolWithArgmax", [(4, -1, 8, 3)], [(4, -1, 3, 3)] * 2, **TWO),
    shapes("MaxPoolWithArgmax", [(9, 8, 3)], None, **TWO),
]

COSTS += [cost("MaxPoolWithArgmax", [(4, 9, 8, 3)], [(4, 4, 3, 3)] * 2, 6 * 144, **TWO)]


test_shapes_and_costs = case_tests(SHAPES, COSTS)
