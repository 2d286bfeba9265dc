"""Fake quantization."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from tests.ops.cases import CostCase, OpCase, cost, shapes
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


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes_follow_from_the_inputs(case: OpCase) -> None:
    case.check()


@pytest.mark.parametrize("case", COSTS, ids=str)
def test_costs_follow_from_the_shapes(case: CostCase) -> None:
    case.check()


def test_fake_quantization_rounds_to_steps_around_zero() -> None:
    # 16 levels from -1 to 2 are 0.2 apart; zero is one of them.
    x = f32(-5, -0.29, 0.09, 0.11, 1.71, 5)
    out = run("FakeQuantWithMinMaxVars", x, f32(-1), f32(2), num_bits=4)
    np.testing.assert_allclose(out, [-1, -0.2, 0, 0.2, 1.8, 2], atol=1e-6)
    same = run("FakeQuantWithMinMaxArgs", x, min=-1.0, max=2.0, num_bits=4)
    np.testing.assert_array_equal(same, out)


def test_fake_quantization_moves_its_bounds_so_that_zero_is_a_step() -> None:
    # Levels 0.2 apart, of which one is to be 0: -0.95 becomes -1, and 2.05 becomes 2.
    out = run("FakeQuantWithMinMaxVars", f32(-3, 0, 3), f32(-0.95), f32(2.05), num_bits=4)
    np.testing.assert_allclose(out, [-1, 0, 2], atol=1e-6)


def test_fake_quantization_by_channel_and_without_a_range() -> None:
    x = f32([[0.6, 0.6], [9, 9]])
    out = run("FakeQuantWithMinMaxVarsPerChannel", x, f32(0, 0), f32(15, 3), num_bits=4)
    np.testing.assert_allclose(out, [[1, 0.6], [9, 3]], atol=1e-6)
    assert run("FakeQuantWithMinMaxVars", x, f32(0), f32(0)).tolist() == [[0, 0], [0, 0]]
    narrow = run(
        "FakeQuantWithMinMaxVars", f32(-9, 9), f32(-7), f32(7), num_bits=4, narrow_range=True
    )
    np.testing.assert_allclose(narrow, [-7, 7])


def test_a_tie_of_the_nudged_zero_goes_away_from_zero() -> None:
    # 4 levels from -0.5 to 2.5 are 1 apart and 0 lies half way between two: it becomes the second.
    out = run("FakeQuantWithMinMaxVars", f32(-2, 0.4, 9), f32(-0.5), f32(2.5), num_bits=2)
    assert out.tolist() == [-1, 0, 2]


@pytest.mark.parametrize(
    ("op", "x", "low", "high", "attrs", "expected"),
    [
        # 7.5 steps of 1/15, and 127.5 of 4/255 from zero on
        ("Vars", 0.5, 0, 1, {"num_bits": 4}, 7 / 15),
        ("VarsPerChannel", 0.5, 0, 1, {"num_bits": 4}, 8 / 15),
        ("Args", 0.5, 0, 1, {"num_bits": 4}, 8 / 15),
        ("Args", 2, -1, 3, {}, 128 * 4 / 255),
    ],
)
def test_a_tie_of_a_number_goes_where_tensorflow_has_it_go(
    op: str, x: float, low: float, high: float, attrs: dict[str, int], expected: float
) -> None:
    """Vars is divided by the step, and the others multiplied by a factor of their own."""
    if op == "Args":
        out = run(f"{FAKE}{op}", f32([x]), min=float(low), max=float(high), **attrs)
    else:
        bounds = [f32([b] if op == "VarsPerChannel" else b) for b in (low, high)]
        out = run(f"{FAKE}{op}", f32([x]), *bounds, **attrs)
    assert out.tolist() == pytest.approx([expected], rel=1e-6)


def test_fake_quantization_has_eight_bits_and_ends_at_six_unless_told() -> None:
    # 255 steps of 12 / 255; zero is nudged to level 128, and the ends with it.
    step = 12 / 255
    found = run("FakeQuantWithMinMaxArgs", f32(-7, -6, 0.03, 0.02, 7))
    np.testing.assert_allclose(found, np.array([-128, -127, 1, 0, 127]) * step, rtol=1e-5)


def test_a_range_on_one_side_of_zero_is_nudged_to_begin_or_end_there() -> None:
    above = run("FakeQuantWithMinMaxVars", f32(-1, 1.4, 9), f32(1), f32(4), num_bits=2)
    assert above.tolist() == [0, 1, 3]
    below = run("FakeQuantWithMinMaxVars", f32(-9, -1.4, 1), f32(-4), f32(-1), num_bits=2)
    assert below.tolist() == [-3, -1, 0]


def test_bounds_that_are_not_one_for_each_channel_are_refused() -> None:
    for low, high in ((f32(0, 0), f32([1])), (f32([0]), f32([1])), (f32([0]), f32(1, 1))):
        with pytest.raises(InvalidGraphError, match="bounds of shapes"):
            run("FakeQuantWithMinMaxVarsPerChannel", f32([[1, 2]]), low, high)
