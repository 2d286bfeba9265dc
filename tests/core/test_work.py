"""Arithmetic is counted within a run, and refused beyond what it may do."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.core.limits import OverWorkError, spend, spend_products, working


def test_what_is_done_adds_up_to_the_bound() -> None:
    with working(100):
        spend(60)
        spend(40)
        with pytest.raises(OverWorkError, match="the window takes 1 FLOP, and 0 FLOP remain"):
            spend(1, "the window")


def test_what_is_refused_is_not_counted() -> None:
    with working(100):
        with pytest.raises(OverWorkError):
            spend(101)
        spend(100)


def test_a_bound_inside_another_is_its_own() -> None:
    with working(100):
        with working(10), pytest.raises(OverWorkError):
            spend(11)
        spend(100)


def test_outside_of_runs_nothing_is_counted() -> None:
    spend(1e30)


@pytest.mark.parametrize(
    ("operations", "told"),
    [(2.5e12, "2.5 TFLOP"), (1e9, "1.0 GFLOP"), (3e6, "3.0 MFLOP"), (999, "999 FLOP")],
)
def test_numbers_are_told_in_units(operations: float, told: str) -> None:
    with working(0), pytest.raises(OverWorkError, match=told):
        spend(operations)


def test_products_of_integers_take_longer() -> None:
    with working(200):
        spend_products(100, np.dtype(np.float32))
    with working(200), pytest.raises(OverWorkError):
        spend_products(100, np.dtype(np.int32))
