"""QuantizeAndDequantize."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from tests.ops.cases import CostCase, OpCase, cost, shapes
from tests.ops.graphs import f32, i32
from tests.ops.quantized_graphs import run_quantized

# How many ends of ranges, and numbers of bits, follow the input.
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
def test_numbers_are_rounded_to_the_steps_of_the_given_range(version: int) -> None:
    out = run(X, f32(-1), f32(1), version=version, num_bits=3, range_given=True)
    expected = np.float32([-4, -2, 0, 1, 2, 3]) * THIRD
    np.testing.assert_array_equal(out, expected)


def test_the_third_version_takes_the_bits_as_a_tensor() -> None:
    out = run(X, f32(-1), f32(1), i32(3), version=3, range_given=True)
    np.testing.assert_array_equal(out, np.float32([-4, -2, 0, 1, 2, 3]) * THIRD)


def test_without_a_range_that_of_the_elements_is_taken() -> None:
    out = run(f32(-1, 0.1, 0.5), f32(0), f32(0), num_bits=3)
    assert out.tolist() == [-1, 0, 0.5]


@pytest.mark.parametrize(
    ("mode", "expected"), [("HALF_UP", [0, 1, 2, -1]), ("HALF_TO_EVEN", [0, 0, 2, -2])]
)
def test_halves_are_rounded_as_asked(mode: str, expected: list[float]) -> None:
    attrs = {"num_bits": 3, "range_given": True, "round_mode": mode}
    assert run(f32(-0.5, 0.5, 1.5, -1.5), f32(-4), f32(3), **attrs).tolist() == expected


def test_unsigned_numbers_begin_at_zero() -> None:
    out = run(
        f32(-1, 0.4, 0.6, 5), f32(0), f32(1), num_bits=1, signed_input=False, range_given=True
    )
    assert out.tolist() == [0, 0, 1, 1]


def test_slices_along_an_axis_have_ranges_of_their_own() -> None:
    x = f32([[0.4, 10], [1, 40]])
    out = run(x, f32(0), f32(0), num_bits=2, axis=1)
    assert out.tolist() == [[0, 0], [1, 40]]
    out = run(x, f32(-1, -1), f32(1, 1), i32(2), version=3, axis=0, range_given=True)
    assert out.tolist() == [[0, 1], [1, 1]]


def test_the_oldest_version_has_the_range_as_attributes() -> None:
    attrs = {"num_bits": 3, "range_given": True, "input_min": -1.0, "input_max": 1.0}
    (out,) = run_quantized("QuantizeAndDequantize", X, T=DType.FLOAT, **attrs)
    np.testing.assert_array_equal(out, np.float32([-4, -2, 0, 1, 2, 3]) * THIRD)


def test_doubles_stay_doubles() -> None:
    ends = np.float64(-1), np.float64(1)
    (out,) = run_quantized(
        "QuantizeAndDequantizeV2", X.astype(np.float64), *ends, T=DType.DOUBLE, range_given=True
    )
    assert out.dtype == np.float64


def test_empty_tensors_stay_empty() -> None:
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
def test_what_cannot_be_is_refused(ends: tuple, attrs: dict) -> None:
    with pytest.raises(InvalidGraphError, match="'y'"):
        run(X, *ends, **attrs)


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()


def test_numbers_have_eight_bits_and_a_sign_unless_told() -> None:
    given = {"range_given": True, "input_min": -1.0, "input_max": 1.0}
    # 0.3 of 127 steps is 38.1
    x = f32(-1.2, 0.3, 1)
    (first,) = run_quantized("QuantizeAndDequantize", x, T=DType.FLOAT, **given)
    found = [first, *(run(x, f32(-1), f32(1), version=v, range_given=True) for v in (2, 4))]
    found.append(run(x, f32(-1), f32(1), i32(8), version=3, range_given=True))
    for out in found:
        np.testing.assert_allclose(out, [-128 / 127, 38 / 127, 1], rtol=1e-6)


def test_a_narrow_range_leaves_the_lowest_number_out() -> None:
    attrs = {"num_bits": 3, "range_given": True}
    assert run(X, f32(-4), f32(3), **attrs, narrow_range=True)[0] == np.float32(-4) / 3
    out = run(f32(-4, -1, 9), f32(-3), f32(3), **attrs, narrow_range=True)
    assert out.tolist() == [-3, -1, 3]


@pytest.mark.parametrize(("signed", "most"), [(True, 61), (False, 62)])
def test_as_many_bits_as_a_double_sorts_out(signed: bool, most: int) -> None:
    attrs = {"signed_input": signed, "range_given": True}
    assert run(f32([0]), f32(0), f32(1), num_bits=most, **attrs).tolist() == [0]
    with pytest.raises(InvalidGraphError, match=f"cannot have {most + 1} bits"):
        run(f32([0]), f32(0), f32(1), num_bits=most + 1, **attrs)


def test_the_side_with_the_larger_steps_tells_the_scale() -> None:
    # 3 bits have the integers -4 to 3: -1 to 3 takes steps of 1, -8 to 3 steps of 2.
    attrs = {"num_bits": 3, "range_given": True}
    assert run(f32(-9, -1, 9), f32(-1), f32(3), **attrs).tolist() == [-4, -1, 3]
    assert run(f32(-9, -1, 9), f32(-8), f32(3), **attrs).tolist() == [-8, 0, 6]


def test_nothing_but_zeros_stays_so() -> None:
    assert run(f32(0, 0), f32(0), f32(0)).tolist() == [0, 0]
