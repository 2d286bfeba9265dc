"""QuantizeV2. Expected values are those of TensorFlow 1.15 and 2.21."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UnsupportedError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, i32
from tests.ops.quantized_graphs import run_quantized

SHAPES = [
    shapes("QuantizeV2", [(2, -1), (), ()], [(2, -1), (), ()]),
    shapes("QuantizeV2", [None, (), ()], [None, (), ()]),
    shapes("QuantizeV2", [(2, 3), (2,), (2,)], [(2, 3), (2,), (2,)], axis=0),
    shapes("QuantizeV2", [(2, 3), (3,), (3,)], [(2, 3), (3,), (3,)], axis=1),
    shapes("QuantizeV2", [(2, 3), (2,), (2,)], None, axis=1),
    shapes("QuantizeV2", [(2, 3), (2,), (2,)], None, axis=2),
    shapes("QuantizeV2", [(2, 3), (), ()], None, axis=0),
]

COSTS = [cost("QuantizeV2", [(2, 3), (), ()], [(2, 3), (), ()], 30)]

QUINT8, QINT8, QINT32 = DType.QUINT8, DType.QINT8, DType.QINT32
X = f32(-2, -1, -0.4, 0, 0.3, 0.5, 1, 3)

EXPECTED = {
    (QUINT8, "MIN_COMBINED"): [0, 0, 51, 85, 110, 128, 170, 255],
    (QUINT8, "MIN_FIRST"): [0, 0, 51, 85, 111, 128, 170, 255],
    (QUINT8, "SCALED"): [0, 0, 0, 0, 38, 64, 128, 255],
    (QINT8, "MIN_COMBINED"): [-128, -128, -77, -43, -18, -1, 42, 127],
    (QINT8, "MIN_FIRST"): [-128, -128, -77, -43, -17, 0, 42, 127],
    (QINT8, "SCALED"): [-127, -64, -25, 0, 19, 32, 64, 127],
    (DType.QUINT16, "MIN_COMBINED"): [0, 0, 13107, 21845, 28398, 32768, 43690, 65535],
    (DType.QUINT16, "MIN_FIRST"): [0, 0, 13107, 21845, 28399, 32768, 43690, 65535],
    (DType.QUINT16, "SCALED"): [0, 0, 0, 0, 9830, 16384, 32768, 65535],
    (DType.QINT16, "MIN_COMBINED"): [-32768, -32768, -19661, -10923, -4370, -1, 10922, 32767],
    (DType.QINT16, "MIN_FIRST"): [-32768, -32768, -19661, -10923, -4369, 0, 10922, 32767],
    (DType.QINT16, "SCALED"): [-32767, -16384, -6553, 0, 4915, 8192, 16384, 32767],
    (QINT32, "MIN_COMBINED"): [
        *(-(2**31), -(2**31), -1288490112, -715827840, -286331136, 0, 715827968, -(2**31)),
    ],
    (QINT32, "MIN_FIRST"): [
        *(-(2**31), -(2**31), -1288490240, -715827840, -286331072, 64, 715827968, 2147483520),
    ],
    (QINT32, "SCALED"): [
        *(-(2**31), -1073741824, -429496736, 0, 322122560, 536870912, 1073741824, -(2**31)),
    ],
}


def quantize(x: np.ndarray, *ends: np.ndarray, **attrs: Any) -> list[np.ndarray]:
    return run_quantized("QuantizeV2", x, *ends, **{"T": QUINT8, **attrs})


@pytest.mark.parametrize(("dtype", "mode"), EXPECTED)
def test_modes_and_dtypes(dtype: DType, mode: str) -> None:
    out, low, high = quantize(X, f32(-1), f32(2), T=dtype, mode=mode)
    assert out.dtype == dtype.numpy
    assert out.tolist() == EXPECTED[dtype, mode]
    if mode != "SCALED":
        assert (low, high) == (-1, 2)


def test_scaled_range_is_symmetric() -> None:
    _, low, high = quantize(X, f32(-1), f32(2), T=QINT8, mode="SCALED")
    assert (low, high) == (np.float32(-2.0157480), 2)
    _, low, high = quantize(X, f32(-1), f32(2), T=QINT8, mode="SCALED", narrow_range=True)
    assert (low, high) == (-2, 2)


@pytest.mark.parametrize(
    ("rounding", "expected"),
    [("HALF_AWAY_FROM_ZERO", [1, 2, 3, -1, -2]), ("HALF_TO_EVEN", [0, 2, 2, 0, -2])],
)
def test_round_mode(rounding: str, expected: list[int]) -> None:
    halves = np.float32([0.5, 1.5, 2.5, -0.5, -1.5]) / np.float32(127)
    attrs = {"T": QINT8, "mode": "SCALED", "narrow_range": True, "round_mode": rounding}
    out, *_ = quantize(halves, f32(-1), f32(1), **attrs)
    assert out.tolist() == expected


def test_range_is_widened_to_include_zero() -> None:
    out, low, high = quantize(f32(5, 5.02), f32(5), f32(5), mode="MIN_FIRST")
    assert (out.tolist(), low, high) == ([255, 255], 0, 5)
    _, low, high = quantize(f32(0, 0), f32(0), f32(0), mode="MIN_FIRST")
    assert (low, high) == (0, np.float32(0.01))


def test_nan_and_infinities() -> None:
    x = f32(np.nan, np.inf, -np.inf)
    for dtype, expected in ((QUINT8, [0, 255, 0]), (QINT8, [0, 127, -128])):
        for mode in ("MIN_COMBINED", "MIN_FIRST"):
            out, *_ = quantize(x, f32(-1), f32(1), T=dtype, mode=mode)
            assert out.tolist() == expected


def test_ranges_per_axis() -> None:
    x = f32([[1, 1], [1, 1]])
    out, low, high = quantize(x, f32(0, 0), f32(1, 2), mode="SCALED", axis=0)
    assert out.tolist() == [[255, 255], [128, 128]]
    assert (low.tolist(), high.tolist()) == ([0, 0], [1, 2])


def test_single_slice_has_a_scalar_range() -> None:
    out, low, _ = quantize(f32([[1, 0]]), f32([0]), f32([1]), mode="MIN_FIRST", axis=0)
    assert out.tolist() == [[255, 0]]
    assert low.shape == ()


def test_empty_tensor_and_scalar() -> None:
    for shape in ((0, 3), ()):
        out, *_ = quantize(np.zeros(shape, np.float32), f32(0), f32(1))
        assert out.shape == shape


@pytest.mark.parametrize(
    ("ends", "attrs", "error"),
    [
        ((f32(1), f32(0)), {}, InvalidGraphError),
        ((f32(0, 0), f32(1, 1)), {}, InvalidGraphError),
        ((f32(0, 0), f32(1, 1)), {"axis": 0, "mode": "SCALED"}, InvalidGraphError),
        ((f32(0), f32(1)), {"axis": 1, "mode": "SCALED"}, InvalidGraphError),
        ((f32(0), f32(1)), {"axis": -2}, InvalidGraphError),
        ((f32(0), f32(1)), {"mode": "ODD"}, InvalidGraphError),
        ((f32(0), f32(1)), {"round_mode": "HALF_TO_EVEN"}, InvalidGraphError),
        (
            (np.zeros(8, np.float32), np.ones(8, np.float32)),
            {"axis": 0, "mode": "MIN_FIRST"},
            UnsupportedError,
        ),
        ((f32(0), f32(1)), {"T": DType.INT8}, UnsupportedError),
    ],
)
def test_invalid_arguments_are_refused(ends: tuple, attrs: dict, error: type[Exception]) -> None:
    with pytest.raises(error, match="'y'"):
        quantize(X, *ends, **attrs)


SHAPES += [
    shapes("Dequantize", [(2, -1), (), ()], [(2, -1)]),
    shapes("Dequantize", [None, (), ()], [None]),
    shapes("Dequantize", [(2, 3), (3,), (3,)], [(2, 3)], axis=1),
]

COSTS += [cost("Dequantize", [(2, 3), (), ()], [(2, 3)], 12)]

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
def test_dequantize_modes_and_dtypes(values: np.ndarray, mode: str, expected: list[float]) -> None:
    np.testing.assert_array_equal(run(values, f32(-1), f32(2), mode=mode), np.float32(expected))


def test_dequantize_ranges_per_axis() -> None:
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


def test_dequantize_empty_tensor_and_scalar() -> None:
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
def test_dequantize_invalid_arguments_are_refused(
    ends: tuple, attrs: dict, error: type[Exception]
) -> None:
    with pytest.raises(error, match="'y'"):
        run(U8, *ends, **attrs)


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


SHRINK = "QuantizeDownAndShrinkRange"

SHAPES += [
    shapes("Requantize", [(2, -1), (), (), (), ()], [(2, -1), (), ()]),
    shapes("RequantizationRange", [(2, -1), (), ()], [(), ()]),
    shapes(SHRINK, [(2, -1), (), ()], [(2, -1), (), ()]),
]

COSTS += [
    cost("Requantize", [(2, 3), (), (), (), ()], [(2, 3), (), ()], 18),
    cost("RequantizationRange", [(2, 3), (), ()], [(), ()], 12),
    cost(SHRINK, [(2, 3), (), ()], [(2, 3), (), ()], 30),
]

SUMS = np.array([-(2**31), -(10**6), -1, 0, 1, 10**6, 2 * 10**6, 2**31 - 1], np.int32)
LARGE = (f32(-1000), f32(1000))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        # Products beyond 64 bits wrap.
        (QUINT8, [255, 6, 85, 85, 85, 164, 243, 0]),
        (QINT8, [-128, -122, -43, -43, -43, 36, 115, 127]),
    ],
)
def test_requantize(dtype: DType, expected: list[int]) -> None:
    out, low, high = run_quantized(
        "Requantize", SUMS, *LARGE, f32(-0.5), f32(1), Tinput=QINT32, out_type=dtype
    )
    assert out.dtype == dtype.numpy
    assert out.tolist() == expected
    assert (low, high) == (-0.5, 1)


@pytest.mark.parametrize("output_range", [(0.5, 1), (-1, -2), (np.nan, 1)])
def test_invalid_output_range_is_refused(output_range: tuple[float, float]) -> None:
    with pytest.raises(InvalidGraphError, match="'y' is to give the range"):
        run_quantized(
            "Requantize", SUMS, *LARGE, *map(f32, output_range), Tinput=QINT32, out_type=QUINT8
        )


def test_unsupported_output_type_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="put out quint16"):
        run_quantized("Requantize", SUMS, *LARGE, *LARGE, Tinput=QINT32, out_type=DType.QUINT16)


def test_requantization_range_includes_zero() -> None:
    sums = np.array([-(10**6), 5 * 10**6], np.int32)
    low, high = run_quantized("RequantizationRange", sums, *LARGE, Tinput=QINT32)
    assert (low, high) == (np.float32(-0.46566105), np.float32(2.3283067))
    low, high = run_quantized("RequantizationRange", sums[1:], *LARGE, Tinput=QINT32)
    assert (low, high) == (0, np.float32(2.3283067))


def test_requantization_range_of_empty_tensor() -> None:
    low, high = run_quantized("RequantizationRange", SUMS[:0], *LARGE, Tinput=QINT32)
    assert (low, high) == (0, -1000)


def test_quantize_down_and_shrink_range() -> None:
    sums = np.array([-(10**6), 0, 10**6, 5 * 10**6], np.int32)
    out, low, high = run_quantized(
        "QuantizeDownAndShrinkRange", sums, *LARGE, Tinput=QINT32, out_type=QUINT8
    )
    assert out.tolist() == [0, 42, 85, 255]
    assert (low, high) == (np.float32(-0.46566105), np.float32(2.3283067))


CHANNELS = np.array([[-8, -7, -6], [7, 6, 5]], np.int32).reshape(1, 1, 2, 3) * 10**8
LOWS, HIGHS = f32(-1, -1, -2), f32(1, 2, 3)


def range_per_channel(x: np.ndarray, limit: float) -> list[np.ndarray]:
    attrs = {"T": QINT32, "clip_value_max": limit}
    return run_quantized("RequantizationRangePerChannel", x, LOWS, HIGHS, **attrs)


def test_range_per_channel() -> None:
    low, high = range_per_channel(CHANNELS, 1e9)
    assert high == np.float32(3 * np.float32(6e8) / np.float32(2**31))
    assert low == -high
    assert range_per_channel(CHANNELS, 0.5) == [-0.5, 0.5]


def test_range_per_channel_of_positive_values_starts_at_zero() -> None:
    assert range_per_channel(CHANNELS[:, :, 1:], 9.0)[0] == 0


def test_requantize_per_channel() -> None:
    out, low, high = run_quantized(
        "RequantizePerChannel", CHANNELS, LOWS, HIGHS, f32(-1), f32(1), T=QINT32, out_type=QINT8
    )
    exact = CHANNELS.astype(np.float64) * [1, 2, 3] / 2**31 * 127
    assert out.tolist() == np.clip(np.rint(exact), -128, 127).tolist()
    assert (low, high) == (-1, 1)


@pytest.mark.parametrize(
    ("x", "ends", "dtype"),
    [
        (CHANNELS[0], (f32(-1), f32(1)), QINT8),
        (CHANNELS, (f32(0), f32(1)), QINT8),
        (CHANNELS, (f32(-1, -1), f32(1, 1)), QINT8),
    ],
)
def test_invalid_channels_or_ranges_are_refused(x, ends, dtype) -> None:
    with pytest.raises(InvalidGraphError, match="'y'"):
        run_quantized("RequantizePerChannel", x, LOWS, HIGHS, *ends, T=QINT32, out_type=dtype)


RANGE, REQUANTIZE = "RequantizationRangePerChannel", "RequantizePerChannel"
CLIP = {"clip_value_max": 6.0}

SHAPES += [
    shapes(RANGE, [(1, 2, 5, 3), (3,), (3,)], [(), ()], **CLIP),
    shapes(REQUANTIZE, [(1, 2, -1, 3), (3,), (3,), (), ()], [(1, 2, -1, 3), (), ()]),
]

COSTS += [
    cost(RANGE, [(1, 2, 5, 3), (3,), (3,)], [(), ()], 60),
    cost(REQUANTIZE, [(1, 2, 5, 3), (3,), (3,), (), ()], [(1, 2, 5, 3), (), ()], 90),
]


# Number of inputs after the tensor: range ends and number of bits.
ENDS = {
    "QuantizeAndDequantize": 0,
    "QuantizeAndDequantizeV2": 2,
    "QuantizeAndDequantizeV3": 3,
    "QuantizeAndDequantizeV4": 2,
}

SHAPES += [
    *(shapes(op, [(2, -1), *[()] * count], [(2, -1)]) for op, count in ENDS.items()),
    *(shapes(op, [None, *[()] * count], [None]) for op, count in ENDS.items()),
]

COSTS += [cost(op, [(2, 3), *[()] * count], [(2, 3)], 42) for op, count in ENDS.items()]

QUANTIZE_AND_DEQUANTIZE_X = f32(-1.2, -0.5, 0, 0.3, 0.7, 2)
THIRD = np.float32(1) / np.float32(3)


def quantize_and_dequantize_run(
    x: np.ndarray, *rest: np.ndarray, version: int = 2, **attrs
) -> np.ndarray:
    (out,) = run_quantized(f"QuantizeAndDequantizeV{version}", x, *rest, T=DType.FLOAT, **attrs)
    return out


@pytest.mark.parametrize("version", [2, 4])
def test_given_range(version: int) -> None:
    out = quantize_and_dequantize_run(
        QUANTIZE_AND_DEQUANTIZE_X, f32(-1), f32(1), version=version, num_bits=3, range_given=True
    )
    expected = np.float32([-4, -2, 0, 1, 2, 3]) * THIRD
    np.testing.assert_array_equal(out, expected)


def test_v3_reads_bits_from_an_input() -> None:
    out = quantize_and_dequantize_run(
        QUANTIZE_AND_DEQUANTIZE_X, f32(-1), f32(1), i32(3), version=3, range_given=True
    )
    np.testing.assert_array_equal(out, np.float32([-4, -2, 0, 1, 2, 3]) * THIRD)


def test_range_of_the_elements() -> None:
    out = quantize_and_dequantize_run(f32(-1, 0.1, 0.5), f32(0), f32(0), num_bits=3)
    assert out.tolist() == [-1, 0, 0.5]


@pytest.mark.parametrize(
    ("mode", "expected"), [("HALF_UP", [0, 1, 2, -1]), ("HALF_TO_EVEN", [0, 0, 2, -2])]
)
def test_quantize_and_dequantize_round_mode(mode: str, expected: list[float]) -> None:
    attrs = {"num_bits": 3, "range_given": True, "round_mode": mode}
    assert (
        quantize_and_dequantize_run(f32(-0.5, 0.5, 1.5, -1.5), f32(-4), f32(3), **attrs).tolist()
        == expected
    )


def test_unsigned_integers() -> None:
    out = quantize_and_dequantize_run(
        f32(-1, 0.4, 0.6, 5), f32(0), f32(1), num_bits=1, signed_input=False, range_given=True
    )
    assert out.tolist() == [0, 0, 1, 1]


def test_quantize_and_dequantize_ranges_per_axis() -> None:
    x = f32([[0.4, 10], [1, 40]])
    out = quantize_and_dequantize_run(x, f32(0), f32(0), num_bits=2, axis=1)
    assert out.tolist() == [[0, 0], [1, 40]]
    out = quantize_and_dequantize_run(
        x, f32(-1, -1), f32(1, 1), i32(2), version=3, axis=0, range_given=True
    )
    assert out.tolist() == [[0, 1], [1, 1]]


def test_v1_reads_the_range_from_attributes() -> None:
    attrs = {"num_bits": 3, "range_given": True, "input_min": -1.0, "input_max": 1.0}
    (out,) = run_quantized(
        "QuantizeAndDequantize", QUANTIZE_AND_DEQUANTIZE_X, T=DType.FLOAT, **attrs
    )
    np.testing.assert_array_equal(out, np.float32([-4, -2, 0, 1, 2, 3]) * THIRD)


def test_float64() -> None:
    ends = np.float64(-1), np.float64(1)
    (out,) = run_quantized(
        "QuantizeAndDequantizeV2",
        QUANTIZE_AND_DEQUANTIZE_X.astype(np.float64),
        *ends,
        T=DType.DOUBLE,
        range_given=True,
    )
    assert out.dtype == np.float64


def test_empty_tensor() -> None:
    assert quantize_and_dequantize_run(np.zeros((0, 2), np.float32), f32(0), f32(0)).shape == (0, 2)


@pytest.mark.parametrize(
    ("ends", "attrs"),
    [
        ((f32(1), f32(0)), {"range_given": True}),
        ((f32(np.nan), f32(1)), {"range_given": True}),
        ((f32(0, 0), f32(1, 1)), {"range_given": True}),
        ((f32(0), f32(1)), {"range_given": True, "axis": 0}),
        ((f32(0), f32(1)), {"axis": 1}),
        ((f32(0), f32(1)), {"num_bits": 0}),
        ((f32(0), f32(1)), {"num_bits": 62}),
        ((f32(0), f32(1)), {"round_mode": "ODD"}),
    ],
)
def test_quantize_and_dequantize_invalid_arguments_are_refused(ends: tuple, attrs: dict) -> None:
    with pytest.raises(InvalidGraphError, match="'y'"):
        quantize_and_dequantize_run(QUANTIZE_AND_DEQUANTIZE_X, *ends, **attrs)


def test_default_is_signed_8_bits() -> None:
    range_ = {"range_given": True, "input_min": -1.0, "input_max": 1.0}
    # 0.3 of 127 steps is 38.1
    x = f32(-1.2, 0.3, 1)
    (first,) = run_quantized("QuantizeAndDequantize", x, T=DType.FLOAT, **range_)
    outputs = [
        first,
        *(
            quantize_and_dequantize_run(x, f32(-1), f32(1), version=v, range_given=True)
            for v in (2, 4)
        ),
    ]
    outputs.append(
        quantize_and_dequantize_run(x, f32(-1), f32(1), i32(8), version=3, range_given=True)
    )
    for out in outputs:
        np.testing.assert_allclose(out, [-128 / 127, 38 / 127, 1], rtol=1e-6)


def test_quantize_and_dequantize_narrow_range() -> None:
    attrs = {"num_bits": 3, "range_given": True}
    assert (
        quantize_and_dequantize_run(
            QUANTIZE_AND_DEQUANTIZE_X, f32(-4), f32(3), **attrs, narrow_range=True
        )[0]
        == np.float32(-4) / 3
    )
    out = quantize_and_dequantize_run(f32(-4, -1, 9), f32(-3), f32(3), **attrs, narrow_range=True)
    assert out.tolist() == [-3, -1, 3]


@pytest.mark.parametrize(("signed", "most"), [(True, 61), (False, 62)])
def test_maximum_number_of_bits(signed: bool, most: int) -> None:
    attrs = {"signed_input": signed, "range_given": True}
    assert quantize_and_dequantize_run(
        f32([0]), f32(0), f32(1), num_bits=most, **attrs
    ).tolist() == [0]
    with pytest.raises(InvalidGraphError, match=f"cannot have {most + 1} bits"):
        quantize_and_dequantize_run(f32([0]), f32(0), f32(1), num_bits=most + 1, **attrs)


def test_scale_is_the_larger_of_both_sides() -> None:
    # 3 bits hold integers from -4 to 3: -1 to 3 needs steps of 1, -8 to 3 steps of 2.
    attrs = {"num_bits": 3, "range_given": True}
    assert quantize_and_dequantize_run(f32(-9, -1, 9), f32(-1), f32(3), **attrs).tolist() == [
        -4,
        -1,
        3,
    ]
    assert quantize_and_dequantize_run(f32(-9, -1, 9), f32(-8), f32(3), **attrs).tolist() == [
        -8,
        0,
        6,
    ]


def test_zeros_are_preserved() -> None:
    assert quantize_and_dequantize_run(f32(0, 0), f32(0), f32(0)).tolist() == [0, 0]


test_shapes_and_costs = case_tests(SHAPES, COSTS)
