"""Convolutions and matrix products over paddings, strides, dilations, and transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.litert.one_op import check, integers, numbers

STRIDES = [[1, 1, 1, 1], [1, 2, 2, 1], [1, 2, 1, 1]]


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", STRIDES)
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (5, 2)])
def test_conv_2d(padding: str, strides: list[int], kernel: tuple[int, int]) -> None:
    x, w = numbers(2, 9, 8, 3), numbers(*kernel, 3, 4, seed=5)
    operators = check("Conv2D", [x, w], constant=[1], strides=strides, padding=padding)
    assert operators == ["CONV_2D"]


def test_conv_2d_with_an_open_batch() -> None:
    x, w = numbers(2, 9, 8, 3), numbers(3, 3, 3, 4, seed=5)
    strides, padding = [1, 1, 1, 1], "SAME"
    check("Conv2D", [x, w], constant=[1], open_sizes=True, strides=strides, padding=padding)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_dilated_conv_2d(padding: str) -> None:
    x, w = numbers(1, 12, 11, 3), numbers(3, 3, 3, 4, seed=5)
    attrs: dict[str, Any] = {"strides": [1, 1, 1, 1], "dilations": [1, 2, 3, 1]}
    check("Conv2D", [x, w], constant=[1], padding=padding, **attrs)


def test_explicit_padding_becomes_pad() -> None:
    x, w = numbers(1, 7, 6, 3), numbers(3, 3, 3, 4, seed=5)
    pads = [0, 0, 1, 2, 0, 1, 0, 0]
    operators = check(
        "Conv2D",
        [x, w],
        constant=[1],
        strides=[1, 2, 2, 1],
        padding="EXPLICIT",
        explicit_paddings=pads,
    )
    assert operators == ["PAD", "CONV_2D"]


def test_conv_2d_with_fed_weights() -> None:
    x, w = numbers(1, 7, 6, 3), numbers(3, 3, 3, 4, seed=5)
    values = check("Conv2D", [x, w], strides=[1, 1, 1, 1], padding="SAME")
    assert values == ["TRANSPOSE", "CONV_2D"]


@pytest.mark.parametrize("multiplier", [1, 3])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_conv_2d(multiplier: int, padding: str, stride: int) -> None:
    x, w = numbers(2, 9, 8, 4), numbers(3, 3, 4, multiplier, seed=5)
    strides = [1, stride, stride, 1]
    kind = "DepthwiseConv2dNative"
    operators = check(kind, [x, w], constant=[1], strides=strides, padding=padding)
    assert operators == ["DEPTHWISE_CONV_2D"]


def test_dilated_depthwise_conv_2d() -> None:
    x, w = numbers(1, 12, 11, 4), numbers(3, 3, 4, 1, seed=5)
    attrs: dict[str, Any] = {"strides": [1, 1, 1, 1], "dilations": [1, 2, 2, 1]}
    check("DepthwiseConv2dNative", [x, w], constant=[1], padding="SAME", **attrs)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_conv_2d_backprop_input(padding: str, stride: int) -> None:
    height, width = (4 * stride, 5 * stride)
    if padding == "VALID":
        height, width = 3 * stride + 3, 4 * stride + 3
    sizes = np.array([2, height, width, 3], np.int32)
    w, x = numbers(3, 3, 3, 6), numbers(2, 4, 5, 6, seed=5)
    strides = [1, stride, stride, 1]
    kind = "Conv2DBackpropInput"
    operators = check(kind, [sizes, w, x], constant=[0, 1], strides=strides, padding=padding)
    assert operators == ["TRANSPOSE_CONV"]


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
def test_conv_3d(padding: str, stride: int) -> None:
    x, w = numbers(1, 6, 7, 8, 3), numbers(2, 3, 3, 3, 4, seed=5)
    strides = [1, stride, stride, stride, 1]
    operators = check("Conv3D", [x, w], constant=[1], strides=strides, padding=padding)
    assert operators == ["CONV_3D"]


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("constant", [[0, 1], [1]], ids=["constant", "computed sizes"])
def test_conv_3d_backprop_input(padding: str, stride: int, constant: list[int]) -> None:
    grown = [size * stride if padding == "SAME" else (size - 1) * stride + 3 for size in (3, 4, 5)]
    sizes = np.array([1, *grown, 4], np.int32)
    w, x = numbers(3, 3, 3, 4, 2, seed=5), numbers(1, 3, 4, 5, 2)
    strides = [1, stride, stride, stride, 1]
    kind = "Conv3DBackpropInputV2"
    operators = check(kind, [sizes, w, x], constant=constant, strides=strides, padding=padding)
    assert operators == ["CONV_3D_TRANSPOSE"]


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("fed", [False, True])
def test_matmul(transpose_a: bool, transpose_b: bool, fed: bool) -> None:
    a = numbers(*((5, 3) if transpose_a else (3, 5)))
    b = numbers(*((4, 5) if transpose_b else (5, 4)), seed=5)
    attrs = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    operators = check("MatMul", [a, b], constant=[] if fed else [1], **attrs)
    assert operators[-1] == ("BATCH_MATMUL" if fed else "FULLY_CONNECTED")


@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (1, 6, 4, 5))])
@pytest.mark.parametrize("turned", [False, True])
def test_batch_matmul(shapes: tuple[tuple[int, ...], tuple[int, ...]], turned: bool) -> None:
    a, b = numbers(*shapes[0]), numbers(*shapes[1], seed=5)
    if turned:
        b = np.ascontiguousarray(np.swapaxes(b, -1, -2))
    assert check("BatchMatMulV2", [a, b], adj_y=turned) == ["BATCH_MATMUL"]


def test_integer_matmul_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="not for int32"):
        check("MatMul", [integers(2, 3), integers(3, 2)], constant=[1])


def test_conv_2d_with_an_unknown_number_of_channels() -> None:
    values = [numbers(1, 6, 5, 3), numbers(2, 2, 3, 4)]
    check("Conv2D", values, open_sizes=4, strides=[1, 1, 1, 1], padding="VALID")


@pytest.mark.parametrize("turned", [False, True])
def test_int8_batch_matmul(turned: bool) -> None:
    shapes = ((2, 5, 3), (2, 4, 5)) if turned else ((2, 3, 5), (2, 5, 4))
    values = [integers(*shape, low=-128, high=128, dtype=np.int8) for shape in shapes]
    options = {"adj_x": turned, "adj_y": turned, "Tout": DType.INT32}
    check("BatchMatMulV3", values, **options)


def test_int8_batch_matmul_beyond_float32_is_refused() -> None:
    values = [integers(1, 2000, dtype=np.int8), integers(2000, 1, dtype=np.int8)]
    with pytest.raises(UnsupportedError, match="exact"):
        check("BatchMatMulV3", values, Tout=DType.INT32)
