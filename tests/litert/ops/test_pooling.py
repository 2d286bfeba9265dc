"""Pooling, over paddings, strides and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.litert.one_op import check, integers, numbers


@pytest.mark.parametrize("kind", ["MaxPool", "AvgPool"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("size", [[1, 2, 2, 1], [1, 3, 2, 1]])
@pytest.mark.parametrize("stride", [1, 2])
def test_pooling(kind: str, padding: str, size: list[int], stride: int) -> None:
    strides = [1, stride, stride, 1]
    operators = check(kind, [numbers(2, 7, 8, 3)], ksize=size, strides=strides, padding=padding)
    assert operators == [{"MaxPool": "MAX_POOL_2D", "AvgPool": "AVERAGE_POOL_2D"}[kind]]


def test_explicit_padding_of_max_pool_is_never_the_maximum() -> None:
    pads = [0, 0, 1, 1, 2, 0, 0, 0]
    x = -1 - abs(numbers(1, 6, 6, 2))
    operators = check(
        "MaxPool",
        [x],
        ksize=[1, 3, 3, 1],
        strides=[1, 2, 2, 1],
        padding="EXPLICIT",
        explicit_paddings=pads,
    )
    assert operators == ["PADV2", "MAX_POOL_2D"]


@pytest.mark.parametrize("radius", [1, 5])
def test_local_response_normalization(radius: int) -> None:
    attrs = {"bias": 2.0, "alpha": 0.5, "beta": 0.75}
    # Powers of float32, which the runtime takes by another function.
    operators = check("LRN", [numbers(2, 3, 4, 9)], depth_radius=radius, tolerance=1e-5, **attrs)
    assert operators == ["LOCAL_RESPONSE_NORMALIZATION"]


@pytest.mark.parametrize("kind", ["MaxPool3D", "AvgPool3D"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("layout", ["NDHWC", "NCDHW"])
@pytest.mark.parametrize("open_sizes", [0, 1])
def test_pooling_3d(kind: str, padding: str, layout: str, open_sizes: int) -> None:
    size, strides, x = [1, 3, 2, 4, 1], [1, 2, 1, 3, 1], numbers(2, 7, 4, 8, 3)
    if layout == "NCDHW":
        size, strides, x = [1, *size[:-1]], [1, *strides[:-1]], x.transpose(0, 4, 1, 2, 3)
    check(
        kind,
        [x],
        open_sizes=open_sizes,
        ksize=size,
        strides=strides,
        padding=padding,
        data_format=layout,
    )


def test_pooling_3d_of_unknown_sizes_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="not known"):
        check(
            "MaxPool3D",
            [numbers(1, 4, 4, 4, 2)],
            open_sizes=2,
            ksize=[1, 2, 2, 2, 1],
            strides=[1, 2, 2, 2, 1],
            padding="SAME",
        )


@pytest.mark.parametrize("with_batch", [False, True])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("window, stride", [((3, 3), (2, 2)), ((2, 4), (1, 3)), ((1, 1), (2, 1))])
def test_max_pool_with_argmax(
    window: tuple[int, int], stride: tuple[int, int], padding: str, with_batch: bool
) -> None:
    options: dict[str, Any] = {
        "ksize": [1, *window, 1],
        "strides": [1, *stride, 1],
        "padding": padding,
        "include_batch_in_index": with_batch,
        "outputs": 2,
    }
    values = np.round(numbers(2, 5, 7, 3) * 2)  # With equal numbers, of which the first counts.
    for kind in (DType.INT64, DType.INT32):
        ran = check("MaxPoolWithArgmax", [values], Targmax=kind, **options)
        assert {"MAX_POOL_2D", "ARG_MAX"} <= set(ran)
    check("MaxPoolWithArgmax", [values], open_sizes=1, Targmax=DType.INT64, **options)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_integer_max_pool(padding: str, dtype: type) -> None:
    values = integers(2, 5, 7, 3, low=-(1 << 31), high=(1 << 31) - 1, dtype=dtype)
    options: dict[str, Any] = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "padding": padding}
    ran = check("MaxPool", [values], open_sizes=1, **options)
    assert ran.count("MAXIMUM") == 5
