"""Dequantize. Expected values are those of TensorFlow 1.15 and 2.21."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32
from tests.ops.quantized_graphs import run_quantized

SHAPES = [
    shapes("Dequantize", [(2, -1), (), ()], [(2, -1)]),
    shapes("Dequantize", [None, (), ()], [None]),
    shapes("Dequantize", [(2, 3), (3,), (3,)], [(2, 3)], axis=1),
]

COSTS = [cost("Dequantize", [(2, 3), (), ()], [(2, 3)], 12)]

U8 = np.array([0, 1, 128, 254, 255], np.uint8)
I8 = np.array([-128, -127, 0, 1, 127], np.int8)
I32 = np.array([-(2**31), -(2**30), 0, 1, 2**31 - 1], np.int32)
TYPES = {"uint8": DType.QUINT8, "int8": DType.QINT8, "int32": DType.QINT32}
CASES = [
    (U8, "MIN_COMBINED", [-1.0, -0.9882353, 0.5058824, 1.9882352, 2.0]),
    (U8, "MIN_FIRST", [-1.0, -0.9882353, 0.5058824, 1.9882352, 2.0]),
    (U8, "SCALED", [0.0, 0.007843138, 1.0039216, 1.992157, 2.0]),
    (I8, "MIN_COMBINED", [-1.0, -0.9882353, 0.5058824, 0.51764715, 2.0]),
    (I8, "MIN_FIRST", [-1.0, -0.98823524, 0.5058824, 0.5176471, 2.0]),
    (I8, "SCALED", [-2.015748, -2.0, 0.0, 0.015748031, 2.0]),
    (I32, "MIN_COMBINED", [-1.0, -0.25, 0.5, 0.5, 2.0]),
    (I32, "MIN_FIRST", [-1.0, -0.25, 0.5, 0.5, 2.0]),
    (I32, "SCALED", [-2.0, -1.0, 0.0, 9.313226e-10, -2.0]),
]


def run(values: np.ndarray, *ends: np.ndarray, **attrs) -> np.ndarray:
    (out,) = run_quantized("Dequantize", values, *ends, T=TYPES[values.dtype.name], **attrs)
    return out


@pytest.mark.parametrize(("values", "mode", "expected"), CASES)
def test_modes_and_dtypes(values: np.ndarray, mode: str, expected: list[float]) -> None:
    np.testing.assert_array_equal(run(values, f32(-1), f32(2), mode=mode), np.float32(expected))


def test_ranges_per_axis() -> None:
    values = np.array([[0, 255], [255, 51]], np.uint8)
    out = run(values, f32(0, 0), f32(1, 5), mode="SCALED", axis=1)
    np.testing.assert_array_equal(out, np.float32([[0, 5], [1, 1]]))
    out = run(values, f32(-1, 0), f32(1, 5), mode="MIN_COMBINED", axis=0)
    np.testing.assert_array_equal(out, np.float32([[-1, 1], [5, 1]]))


def test_narrow_range() -> None:
    wide = run(I8, f32(-127), f32(0), mode="SCALED")
    narrow = run(I8, f32(-127), f32(0), mode="SCALED", narrow_range=True)
    assert wide[1] == np.float32(-127) * (np.float32(-127) / np.float32(-128))
    assert narrow[1] == -127


def test_bfloat16_output() -> None:
    out = run(U8, f32(0), f32(1), mode="MIN_COMBINED", dtype=DType.BFLOAT16)
    assert out.dtype == ml_dtypes.bfloat16
    assert float(out[1]) == 0.003936767578125


def test_empty_tensor_and_scalar() -> None:
    assert run(np.zeros((0, 2), np.uint8), f32(0), f32(1), mode="MIN_FIRST").shape == (0, 2)
    assert run(np.asarray(np.uint8(3)), f32(0), f32(255), mode="SCALED").tolist() == 3


def test_empty_range() -> None:
    for mode in ("MIN_FIRST", "MIN_COMBINED"):
        assert run(U8, f32(3), f32(3), mode=mode).tolist() == [3] * 5


def test_nan_range_gives_nan() -> None:
    assert np.isnan(run(U8, f32(np.nan), f32(1), mode="MIN_FIRST")).all()


@pytest.mark.parametrize(
    ("ends", "attrs", "error"),
    [
        ((f32(0), f32(1)), {"mode": "ODD"}, InvalidGraphError),
        ((f32(0, 0), f32(1, 1)), {"mode": "MIN_FIRST"}, InvalidGraphError),
        ((f32(0), f32(1)), {"mode": "SCALED", "axis": 1}, InvalidGraphError),
        ((f32(0, 1), f32(1, 1)), {"mode": "SCALED", "axis": 0}, InvalidGraphError),
        ((f32(0), f32(1)), {"mode": "MIN_FIRST", "axis": 0}, UnsupportedError),
        ((f32(0), f32(1)), {"mode": "SCALED", "dtype": DType.BFLOAT16}, UnsupportedError),
        ((f32(0), f32(1)), {"dtype": DType.HALF}, UnsupportedError),
    ],
)
def test_invalid_arguments_are_refused(ends: tuple, attrs: dict, error: type[Exception]) -> None:
    with pytest.raises(error, match="'y'"):
        run(U8, *ends, **attrs)


test_shapes_and_costs = case_tests(SHAPES, COSTS)


@pytest.mark.parametrize("seed", range(20))
def test_mat_mul_output_is_equal_in_two_modes(seed: int) -> None:
    """Both range ends are powers of two times a step, so that MIN_FIRST adds 0."""
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 256, (4, 64), np.uint8), rng.integers(0, 256, (64, 8), np.uint8)
    widths = np.float32(10.0) ** rng.uniform(-4, 4, 4).astype(np.float32)
    ends = [f32(end) for end in (-widths[0], widths[1], -widths[2], widths[3])]
    sums, low, high = run_quantized(
        "QuantizedMatMul", x, y, *ends, T1=DType.QUINT8, T2=DType.QUINT8, Toutput=DType.QINT32
    )
    first, scaled = (run(sums, low, high, mode=mode) for mode in ("MIN_FIRST", "SCALED"))
    np.testing.assert_array_equal(first, scaled)
