"""Quantized elementwise ops. Expected values without a comment are TensorFlow's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.node import Node
from mobileprep.ops.quantized.arithmetic import align, always_align
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32
from tests.ops.quantized_graphs import run_quantized

RANGES = [(), (), (), ()]
BIAS, BINARY = "QuantizedBiasAdd", ["QuantizedAdd", "QuantizedMul"]

SHAPES = [
    shapes(BIAS, [(4, 5, -1), (3,), *RANGES], [(4, 5, 3), (), ()]),
    shapes(BIAS, [None, (3,), *RANGES], [None, (), ()]),
    shapes(BIAS, [(4, 5, 2), (3,), *RANGES], None),
    shapes(BIAS, [(3,), (3,), *RANGES], None),
    *(shapes(op, [(2, 1, -1), (3, 4), *RANGES], [(2, 3, 4), (), ()]) for op in BINARY),
    *(shapes(op, [(2,), None, *RANGES], [None, (), ()]) for op in BINARY),
    *(shapes(op, [(2,), (3,), *RANGES], None) for op in BINARY),
]

COSTS = [
    cost(BIAS, [(2, 3), (3,), *RANGES], [(2, 3), (), ()], 6),
    *(cost(op, [(2, 3), (3,), *RANGES], [(2, 3), (), ()], 6) for op in BINARY),
]

QUINT8, QINT8, QINT32 = DType.QUINT8, DType.QINT8, DType.QINT32
BYTES = (f32(0), f32(255))
UNIT, TRIPLE = (f32(-1), f32(1)), (f32(0), f32(3))
BOTH = {"T1": QUINT8, "T2": QUINT8, "Toutput": QINT32}
THREE = np.array([0, 128, 255], np.uint8)


def u8(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)


def test_bias_add() -> None:
    x, bias = np.array([[0, 128], [255, 10]], np.uint8), np.array([0, 255], np.uint8)
    attrs = {"T1": QUINT8, "T2": QUINT8, "out_type": QINT32}
    out, low, high = run_quantized(
        "QuantizedBiasAdd", x, bias, f32(0), f32(1), f32(-2), f32(2), **attrs
    )
    assert out.tolist() == [[-16320, 20560], [-8128, 16769]]
    assert (low, high) == (-(2.0**18), 2.0**18)


def test_bias_add_of_signed_integers() -> None:
    x, bias = np.array([[-128, 0, 127]], np.int8), np.array([0, 0, 0], np.int8)
    attrs = {"T1": QINT8, "T2": QINT8, "out_type": QINT32}
    out, low, high = run_quantized("QuantizedBiasAdd", x, bias, *UNIT, *UNIT, **attrs)
    assert out.tolist() == [[-16191, 258, 16577]]
    assert (low, high) == (-(2.0**17), 2.0**17)


@pytest.mark.parametrize("bias", [u8(3), u8(0), u8(2, 2), u8()])
def test_invalid_bias_is_refused(bias: np.ndarray) -> None:
    attrs = {"T1": QUINT8, "T2": QUINT8, "out_type": QINT32}
    with pytest.raises(InvalidGraphError, match="biases"):
        run_quantized("QuantizedBiasAdd", u8(2, 2), bias, *UNIT, *UNIT, **attrs)


def test_add_has_an_18_bit_range() -> None:
    out, low, high = run_quantized("QuantizedAdd", THREE, THREE, *UNIT, *TRIPLE, **BOTH)
    assert out.tolist() == [-43519, 66049, 174761]
    assert (low, high) == (-3 * 2.0**14, 3 * 2.0**14)


def test_scalar_operand_is_converted_exactly() -> None:
    number = np.asarray(np.uint8(77))
    out, *_ = run_quantized("QuantizedAdd", THREE, number, *UNIT, *TRIPLE, **BOTH)
    assert out.tolist() == [-3940, 39836, 83270]


def test_mul_subtracts_zero_points() -> None:
    out, low, high = run_quantized("QuantizedMul", THREE, THREE, *UNIT, *TRIPLE, **BOTH)
    assert out.tolist() == [0, 0, 127 * 255]
    assert (low, high) == (np.float32(-198153.06), np.float32(198153.06))


@pytest.mark.parametrize(
    ("x", "y"),
    [((2, 3), (3,)), ((3,), (2, 3)), ((2, 3), ()), ((2, 3), (1, 1)), ((2, 3, 4), (3, 4))],
)
def test_broadcasting(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    out, *_ = run_quantized("QuantizedMul", u8(*x), u8(*y), *BYTES, *BYTES, **BOTH)
    np.testing.assert_array_equal(out, u8(*x).astype(np.int32) * u8(*y))


def test_column_broadcast_has_the_original_bug() -> None:
    out, *_ = run_quantized("QuantizedMul", u8(4, 3), u8(4, 1), *BYTES, *BYTES, **BOTH)
    assert out.tolist() == [[0, 1, 4], [9, 0, 5], [12, 21, 0], [9, 20, 33]]


@pytest.mark.parametrize(
    ("x", "y"), [((1, 3), (4, 1)), ((2, 3, 4), (2, 1, 4)), ((2, 1, 4), (1, 3, 1))]
)
def test_unsupported_broadcast_is_refused(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedError, match="cannot broadcast"):
        run_quantized("QuantizedAdd", u8(*x), u8(*y), *BYTES, *BYTES, **BOTH)


def test_invalid_shapes_and_huge_results_are_refused() -> None:
    long = np.zeros(1 << 17, np.uint8)
    for x, y in ((u8(2), u8(3)), (long.reshape(-1, 1), long)):
        with pytest.raises(InvalidGraphError, match="'y'"):
            run_quantized("QuantizedAdd", x, y, *BYTES, *BYTES, **BOTH)


def test_empty_tensors() -> None:
    for x, y in (((0, 3), (3,)), ((2, 0), (0,)), ((0,), ())):
        out, *_ = run_quantized("QuantizedMul", u8(*x), u8(*y), *BYTES, *BYTES, **BOTH)
        assert out.shape == x


@pytest.mark.parametrize("ends", [(f32(1), f32(1)), (f32(1), f32(0)), (f32(0), f32(np.nan))])
@pytest.mark.parametrize("op", ["QuantizedAdd", "QuantizedMul"])
def test_invalid_ranges_are_refused(op: str, ends: tuple) -> None:
    with pytest.raises(InvalidGraphError, match="range from"):
        run_quantized(op, THREE, THREE, *BYTES, *ends, **BOTH)


SHAPES += [
    shapes("QuantizedRelu", [(2, -1), (), ()], [(2, -1), (), ()]),
    shapes("QuantizedRelu6", [(2, -1), (), ()], [(2, -1), (), ()]),
    shapes("QuantizedReluX", [None, (), (), ()], [None, (), ()]),
]

COSTS += [
    cost("QuantizedRelu", [(2, 3), (), ()], [(2, 3), (), ()], 6),
    cost("QuantizedRelu6", [(2, 3), (), ()], [(2, 3), (), ()], 12),
]


SIZES = (-1, 1, 2, 3)
ALL_SHAPES = [s for rank in range(4) for s in itertools.product(SIZES, repeat=rank)]
NODE = Node("sum", "QuantizedAdd")


def _aligns(x, y) -> bool:
    try:
        align(NODE, np.zeros(x, np.uint8), np.zeros(y, np.uint8))
    except (UnsupportedError, ValueError):
        return False
    return True


def _known_shapes(shape):
    return itertools.product(*((1, 2, 3) if size < 0 else (size,) for size in shape))


def test_always_align_if_all_known_shapes_align():
    """An unknown size covers all sizes that broadcast."""
    for x, y in itertools.product(ALL_SHAPES, ALL_SHAPES):
        pairs = []
        for a, b in itertools.product(_known_shapes(x), _known_shapes(y)):
            try:
                np.broadcast_shapes(a, b)
            except ValueError:
                continue
            pairs.append((a, b))
        expected = bool(pairs) and all(_aligns(a, b) for a, b in pairs)
        assert always_align(x, y) == expected, (x, y)


@pytest.mark.parametrize(("x", "y"), [(None, (1,)), ((1,), None), ((1,) * 9, (1,))])
def test_unknown_or_large_rank_does_not_always_align(x, y):
    assert not always_align(x, y)


INSTANCE, BATCH = "QuantizedInstanceNorm", "QuantizedBatchNormWithGlobalNormalization"
ATTRS = {"variance_epsilon": 0.001, "scale_after_normalization": True}


def statistics(image: tuple[int, ...], *lengths: int) -> list[tuple[int, ...]]:
    """Shapes of the image and four vectors, each with its range ends."""
    return [t for tensor in (image, *((n,) for n in lengths)) for t in (tensor, (), ())]


SHAPES += [
    shapes(INSTANCE, [(4, 9, -1, 3), (), ()], [(4, 9, -1, 3), (), ()]),
    shapes(BATCH, statistics((4, 9, 8, -1), 3, 3, 3, 3), [(4, 9, 8, 3), (), ()], **ATTRS),
    *(
        shapes(BATCH, statistics((4, 9, 8, -1), *lengths), [(4, 9, 8, 3), (), ()], **ATTRS)
        for lengths in ((3, -1, -1, -1), (-1, 3, -1, -1), (-1, -1, 3, -1), (-1, -1, -1, 3))
    ),
    shapes(BATCH, statistics((4, 9, 8, 3), 3, 3, 3, 2), None, **ATTRS),
    shapes(BATCH, statistics((9, 8, 3), 3, 3, 3, 3), None, **ATTRS),
]

COSTS += [
    cost(INSTANCE, [(1, 2, 5, 3), (), ()], [(1, 2, 5, 3), (), ()], 6 * 30),
    cost(BATCH, statistics((1, 2, 5, 3), 3, 3, 3, 3), [(1, 2, 5, 3), (), ()], 2 * 30),
]


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


test_shapes_and_costs = case_tests(SHAPES, COSTS)
