"""The order of exceptions from int8, with errors that are worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from mobileprep.litert.quantizing.exceptions import (
    FLOAT,
    WIDE,
    Level,
    Rounding,
    Step,
    Unit,
    plan_exceptions,
)


def additive(
    roundings: Sequence[Rounding], weights: Mapping[int, float]
) -> Callable[[Mapping[int, Level]], float]:
    """Measure programs whose errors add up exactly as estimated."""

    def measure(levels: Mapping[int, Level]) -> float:
        total = sum(error for unit, error in weights.items() if levels.get(unit) != FLOAT)
        for one in roundings:
            rounded = [r for r in one.readers if r not in levels]
            is_written = one.writer is not None and one.writer not in levels
            is_whole = len(rounded) == len(one.readers) and not one.has_others
            is_rounded = is_written or is_whole
            total += one.error if is_rounded else sum(one.by_reader[r] for r in rounded)
        return total

    return measure


def planned(
    units: Sequence[Unit],
    roundings: Sequence[Rounding],
    weights: Mapping[int, float] | None = None,
    *,
    least: float = 0.9,
) -> tuple[Step, ...]:
    weights = weights or {}
    measure = additive(roundings, weights)
    macs = sum(unit.macs for unit in units)
    return plan_exceptions(units, roundings, weights, measure, int8_macs=macs, min_int8_macs=least)


# Layer 0, a sum 1, layer 2, and a softmax 3, whose result is the output.
UNITS = (Unit(macs=0.06), Unit(), Unit(macs=0.94), Unit())
ROUNDINGS = (
    Rounding(0, (1,), 0.2),
    Rounding(1, (2,), 0.4),
    Rounding(2, (3,), 0.1),
    Rounding(3, (), 0.3, has_others=True),
)


def test_units_without_macs_come_first_and_the_limit_holds() -> None:
    steps = planned(UNITS, ROUNDINGS)
    # The softmax alone keeps its result; the sum and its input need layer 0; layer 2 is too large.
    assert [dict(step.units) for step in steps] == [{3: WIDE}, {0: WIDE, 1: WIDE}]
    assert [step.macs for step in steps] == pytest.approx([1.0, 0.94])
    assert [step.error for step in steps] == pytest.approx([0.7, 0.5])


def test_a_lower_limit_reaches_more_layers() -> None:
    steps = planned(UNITS, ROUNDINGS, least=0.0)
    assert {unit for step in steps for unit in step.units} == {0, 1, 2, 3}
    assert steps[-1].macs == pytest.approx(0.0)
    assert steps[-1].error == pytest.approx(0.0)


def test_limit_that_is_missed_already_leaves_free_exceptions() -> None:
    roundings = (Rounding(0, (1,), 1.0), Rounding(1, (), 2.0, has_others=True))
    steps = planned((Unit(macs=0.5), Unit()), roundings)
    assert [dict(step.units) for step in steps] == [{1: WIDE}]
    assert steps[0].macs == pytest.approx(0.5)


def test_one_of_several_readers_keeps_a_tensor() -> None:
    """A sum that another sum and a large layer read."""
    units = (Unit(), Unit(), Unit(macs=1.0))
    shared = Rounding(0, (1, 2), 0.5, {1: 0.4, 2: 0.2})
    steps = planned(units, (shared,))
    # The large layer still rounds it for itself.
    assert [dict(step.units) for step in steps] == [{0: WIDE, 1: WIDE}]
    assert steps[0].error == pytest.approx(0.2)


def test_fixed_units_are_no_exceptions() -> None:
    units = (Unit(is_fixed=True), Unit())
    assert planned(units, (Rounding(0, (1,), 1.0),)) == ()


def test_inputs_need_their_readers_only() -> None:
    steps = planned((Unit(macs=0.01), Unit(macs=0.99)), (Rounding(None, (0,), 1.0),))
    assert [dict(step.units) for step in steps] == [{0: WIDE}]


def test_weights_need_float() -> None:
    units = (Unit(macs=0.05, weights=0.1), Unit(macs=0.95))
    steps = planned(units, (Rounding(0, (), 0.01, has_others=True),), {0: 1.0})
    assert [dict(step.units) for step in steps] == [{0: FLOAT}]
    assert steps[0].error == pytest.approx(0.0)


def test_steps_that_do_not_help_are_left_out() -> None:
    calls = []

    def measure(levels: Mapping[int, Level]) -> float:
        calls.append(dict(levels))
        return 1.0 if 3 in levels else 2.0

    steps = plan_exceptions(UNITS, ROUNDINGS, {}, measure, int8_macs=1.0, min_int8_macs=0.9)
    assert [dict(step.units) for step in steps] == [{3: WIDE}]
    assert {0: WIDE, 1: WIDE, 3: WIDE} in calls


def test_exceptions_whose_error_rises_by_chance_join_the_next_step() -> None:
    """Three equal sums: the measured error rises after the second, and falls after the third."""
    units = (Unit(), Unit(), Unit())
    roundings = [Rounding(unit, (), 1.0, has_others=True) for unit in range(3)]
    errors = {0: 3.0, 1: 2.0, 2: 2.5, 3: 1.0}

    def measure(levels: Mapping[int, Level]) -> float:
        return errors[len(levels)]

    steps = plan_exceptions(units, roundings, {}, measure, int8_macs=0.0, min_int8_macs=0.0)
    assert [(dict(step.units), step.error) for step in steps] == [
        ({0: WIDE}, 2.0),
        ({1: WIDE, 2: WIDE}, 1.0),
    ]


def test_only_float_reduces_the_share_in_integers() -> None:
    units = (Unit(macs=0.25), Unit(macs=0.75))
    roundings = (Rounding(1, (), 2.0, has_others=True),)
    steps = planned(units, roundings, {0: 1.0}, least=0.0)
    assert [(step.macs, step.integers) for step in steps] == [(0.75, 0.75), (0.0, 0.75)]
