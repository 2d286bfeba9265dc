"""Fake quantization."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import case_tests, cost, shapes
from tests.ops.graphs import f32, run

FAKE = "FakeQuantWithMinMax"
CHANNELS = f"{FAKE}VarsPerChannel"

SHAPES = [
    shapes(f"{FAKE}Args", [(2, -1)], [(2, -1)]),
    shapes(f"{FAKE}ArgsGradient", [(2, -1), (2, -1)], [(2, -1)]),
    shapes(f"{FAKE}Vars", [(2, -1), (), ()], [(2, -1)]),
    shapes(CHANNELS, [(2, -1), (3,), (-1,)], [(2, -1)]),
    shapes(CHANNELS, [(2, -1), (-1,), (3,)], [(2, -1)]),
    shapes(CHANNELS, [(3,), (3,), (3,)], [(3,)]),
    shapes(CHANNELS, [(2, 5, 3), (3,), (3,)], [(2, 5, 3)]),
    shapes(CHANNELS, [(2, 3), None, None], [(2, 3)]),
    shapes(CHANNELS, [None, (3,), (3,)], [None]),
    shapes(CHANNELS, [(2, 4), (3,), (-1,)], None),
    shapes(CHANNELS, [(2, 4), (-1,), (3,)], None),
    shapes(CHANNELS, [(), (3,), (3,)], None),
    shapes(CHANNELS, [(2, 3), (), ()], None),
]

COSTS = [
    cost(f"{FAKE}Args", [(2, 3)], [(2, 3)], 42),
    cost(f"{FAKE}Vars", [(2, 3), (), ()], [(2, 3)], 42),
    cost(CHANNELS, [(2, 3), (3,), (3,)], [(2, 3)], 42),
]

test_shapes_and_costs = case_tests(SHAPES, COSTS)


def test_rounding_to_steps() -> None:
    # 16 levels from -1 to 2 are 0.2 apart, and one of them is zero.
    x = f32(-5, -0.29, 0.09, 0.11, 1.71, 5)
    out = run("FakeQuantWithMinMaxVars", x, f32(-1), f32(2), num_bits=4)
    np.testing.assert_allclose(out, [-1, -0.2, 0, 0.2, 1.8, 2], atol=1e-6)
    same = run("FakeQuantWithMinMaxArgs", x, min=-1.0, max=2.0, num_bits=4)
    np.testing.assert_array_equal(same, out)


def test_bounds_are_nudged_to_include_zero() -> None:
    # Levels are 0.2 apart and one must be 0: -0.95 becomes -1, and 2.05 becomes 2.
    out = run("FakeQuantWithMinMaxVars", f32(-3, 0, 3), f32(-0.95), f32(2.05), num_bits=4)
    np.testing.assert_allclose(out, [-1, 0, 2], atol=1e-6)


def test_per_channel_empty_and_narrow_ranges() -> None:
    x = f32([[0.6, 0.6], [9, 9]])
    out = run("FakeQuantWithMinMaxVarsPerChannel", x, f32(0, 0), f32(15, 3), num_bits=4)
    np.testing.assert_allclose(out, [[1, 0.6], [9, 3]], atol=1e-6)
    assert run("FakeQuantWithMinMaxVars", x, f32(0), f32(0)).tolist() == [[0, 0], [0, 0]]
    narrow = run(
        "FakeQuantWithMinMaxVars", f32(-9, 9), f32(-7), f32(7), num_bits=4, narrow_range=True
    )
    np.testing.assert_allclose(narrow, [-7, 7])


def test_nudged_zero_point_rounds_half_away_from_zero() -> None:
    # 4 levels from -0.5 to 2.5 are 1 apart with 0 halfway between two: it becomes the second.
    out = run("FakeQuantWithMinMaxVars", f32(-2, 0.4, 9), f32(-0.5), f32(2.5), num_bits=2)
    assert out.tolist() == [-1, 0, 2]


@pytest.mark.parametrize(
    ("op", "x", "low", "high", "attrs", "expected"),
    [
        # 7.5 steps of 1/15, and 127.5 steps of 4/255 from zero
        ("Vars", 0.5, 0, 1, {"num_bits": 4}, 7 / 15),
        ("VarsPerChannel", 0.5, 0, 1, {"num_bits": 4}, 8 / 15),
        ("Args", 0.5, 0, 1, {"num_bits": 4}, 8 / 15),
        ("Args", 2, -1, 3, {}, 128 * 4 / 255),
    ],
)
def test_ties_match_tensorflow(
    op: str, x: float, low: float, high: float, attrs: dict[str, int], expected: float
) -> None:
    """Vars divides by the step; the others multiply by its inverse."""
    if op == "Args":
        out = run(f"{FAKE}{op}", f32([x]), min=float(low), max=float(high), **attrs)
    else:
        bounds = [f32([b] if op == "VarsPerChannel" else b) for b in (low, high)]
        out = run(f"{FAKE}{op}", f32([x]), *bounds, **attrs)
    assert out.tolist() == pytest.approx([expected], rel=1e-6)


def test_default_bits_and_range() -> None:
    # 255 steps of 12 / 255; zero is nudged to level 128, and the ends are shifted.
    step = 12 / 255
    result = run("FakeQuantWithMinMaxArgs", f32(-7, -6, 0.03, 0.02, 7))
    np.testing.assert_allclose(result, np.array([-128, -127, 1, 0, 127]) * step, rtol=1e-5)


def test_one_sided_range_is_nudged_to_zero() -> None:
    above = run("FakeQuantWithMinMaxVars", f32(-1, 1.4, 9), f32(1), f32(4), num_bits=2)
    assert above.tolist() == [0, 1, 3]
    below = run("FakeQuantWithMinMaxVars", f32(-9, -1.4, 1), f32(-4), f32(-1), num_bits=2)
    assert below.tolist() == [-3, -1, 0]


def test_invalid_channel_bounds_are_refused() -> None:
    for low, high in ((f32(0, 0), f32([1])), (f32([0]), f32([1])), (f32([0]), f32(1, 1))):
        with pytest.raises(InvalidGraphError, match="bounds of shapes"):
            run("FakeQuantWithMinMaxVarsPerChannel", f32([[1, 2]]), low, high)
