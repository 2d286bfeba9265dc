"""QuantizeAndDequantize."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, i32
from tests.ops.quantized_graphs import run_quantized

# Number of inputs after the tensor: range ends and number of bits.
ENDS = {
    "QuantizeAndDequantize": 0,
    "QuantizeAndDequantizeV2": 2,
    "QuantizeAndDequantizeV3": 3,
    "QuantizeAndDequantizeV4": 2,
}

SHAPES = [
    *(shapes(op, [(2, -1), *[()] * count], [(2, -1)]) for op, count in ENDS.items()),
    *(shapes(op, [None, *[()] * count], [None]) for op, count in ENDS.items()),
]

COSTS = [cost(op, [(2, 3), *[()] * count], [(2, 3)], 42) for op, count in ENDS.items()]

X = f32(-1.2, -0.5, 0, 0.3, 0.7, 2)
THIRD = np.float32(1) / np.float32(3)


def run(x: np.ndarray, *rest: np.ndarray, version: int = 2, **attrs) -> np.ndarray:
    (out,) = run_quantized(f"QuantizeAndDequantizeV{version}", x, *rest, T=DType.FLOAT, **attrs)
    return out


@pytest.mark.parametrize("version", [2, 4])
def test_given_range(version: int) -> None:
    out = run(X, f32(-1), f32(1), version=version, num_bits=3, range_given=True)
    expected = np.float32([-4, -2, 0, 1, 2, 3]) * THIRD
    np.testing.assert_array_equal(out, expected)


def test_v3_reads_bits_from_an_input() -> None:
    out = run(X, f32(-1), f32(1), i32(3), version=3, range_given=True)
    np.testing.assert_array_equal(out, np.float32([-4, -2, 0, 1, 2, 3]) * THIRD)


def test_range_of_the_elements() -> None:
    out = run(f32(-1, 0.1, 0.5), f32(0), f32(0), num_bits=3)
    assert out.tolist() == [-1, 0, 0.5]


@pytest.mark.parametrize(
    ("mode", "expected"), [("HALF_UP", [0, 1, 2, -1]), ("HALF_TO_EVEN", [0, 0, 2, -2])]
)
def test_round_mode(mode: str, expected: list[float]) -> None:
    attrs = {"num_bits": 3, "range_given": True, "round_mode": mode}
    assert run(f32(-0.5, 0.5, 1.5, -1.5), f32(-4), f32(3), **attrs).tolist() == expected


def test_unsigned_integers() -> None:
    out = run(
        f32(-1, 0.4, 0.6, 5), f32(0), f32(1), num_bits=1, signed_input=False, range_given=True
    )
    assert out.tolist() == [0, 0, 1, 1]


def test_ranges_per_axis() -> None:
    x = f32([[0.4, 10], [1, 40]])
    out = run(x, f32(0), f32(0), num_bits=2, axis=1)
    assert out.tolist() == [[0, 0], [1, 40]]
    out = run(x, f32(-1, -1), f32(1, 1), i32(2), version=3, axis=0, range_given=True)
    assert out.tolist() == [[0, 1], [1, 1]]


def test_v1_reads_the_range_from_attributes() -> None:
    attrs = {"num_bits": 3, "range_given": True, "input_min": -1.0, "input_max": 1.0}
    (out,) = run_quantized("QuantizeAndDequantize", X, T=DType.FLOAT, **attrs)
    np.testing.assert_array_equal(out, np.float32([-4, -2, 0, 1, 2, 3]) * THIRD)


def test_float64() -> None:
    ends = np.float64(-1), np.float64(1)
    (out,) = run_quantized(
        "QuantizeAndDequantizeV2", X.astype(np.float64), *ends, T=DType.DOUBLE, range_given=True
    )
    assert out.dtype == np.float64


def test_empty_tensor() -> None:
    assert run(np.zeros((0, 2), np.float32), f32(0), f32(0)).shape == (0, 2)


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
def test_invalid_arguments_are_refused(ends: tuple, attrs: dict) -> None:
    with pytest.raises(InvalidGraphError, match="'y'"):
        run(X, *ends, **attrs)


test_shapes_and_costs = case_tests(SHAPES, COSTS)


def test_default_is_signed_8_bits() -> None:
    range_ = {"range_given": True, "input_min": -1.0, "input_max": 1.0}
    # 0.3 of 127 steps is 38.1
    x = f32(-1.2, 0.3, 1)
    (first,) = run_quantized("QuantizeAndDequantize", x, T=DType.FLOAT, **range_)
    outputs = [first, *(run(x, f32(-1), f32(1), version=v, range_given=True) for v in (2, 4))]
    outputs.append(run(x, f32(-1), f32(1), i32(8), version=3, range_given=True))
    for out in outputs:
        np.testing.assert_allclose(out, [-128 / 127, 38 / 127, 1], rtol=1e-6)


def test_narrow_range() -> None:
    attrs = {"num_bits": 3, "range_given": True}
    assert run(X, f32(-4), f32(3), **attrs, narrow_range=True)[0] == np.float32(-4) / 3
    out = run(f32(-4, -1, 9), f32(-3), f32(3), **attrs, narrow_range=True)
    assert out.tolist() == [-3, -1, 3]


@pytest.mark.parametrize(("signed", "most"), [(True, 61), (False, 62)])
def test_maximum_number_of_bits(signed: bool, most: int) -> None:
    attrs = {"signed_input": signed, "range_given": True}
    assert run(f32([0]), f32(0), f32(1), num_bits=most, **attrs).tolist() == [0]
    with pytest.raises(InvalidGraphError, match=f"cannot have {most + 1} bits"):
        run(f32([0]), f32(0), f32(1), num_bits=most + 1, **attrs)


def test_scale_is_the_larger_of_both_sides() -> None:
    # 3 bits hold integers from -4 to 3: -1 to 3 needs steps of 1, -8 to 3 steps of 2.
    attrs = {"num_bits": 3, "range_given": True}
    assert run(f32(-9, -1, 9), f32(-1), f32(3), **attrs).tolist() == [-4, -1, 3]
    assert run(f32(-9, -1, 9), f32(-8), f32(3), **attrs).tolist() == [-8, 0, 6]


def test_zeros_are_preserved() -> None:
    assert run(f32(0, 0), f32(0), f32(0)).tolist() == [0, 0]
