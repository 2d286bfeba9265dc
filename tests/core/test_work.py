"""Arithmetic is counted and limited in a run."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.core.limits import OverWorkError, spend, spend_products, working


def test_work_adds_up_to_the_limit() -> None:
    with working(100):
        spend(60)
        spend(40)
        with pytest.raises(OverWorkError, match="the window takes 1 FLOP, and 0 FLOP remain"):
            spend(1, "the window")


def test_refused_work_is_not_counted() -> None:
    with working(100):
        with pytest.raises(OverWorkError):
            spend(101)
        spend(100)


def test_nested_limit_is_independent() -> None:
    with working(100):
        with working(10), pytest.raises(OverWorkError):
            spend(11)
        spend(100)


def test_work_outside_of_a_run_is_not_counted() -> None:
    spend(1e30)


@pytest.mark.parametrize(
    ("operations", "text"),
    [(2.5e12, "2.5 TFLOP"), (1e9, "1.0 GFLOP"), (3e6, "3.0 MFLOP"), (999, "999 FLOP")],
)
def test_error_shows_units(operations: float, text: str) -> None:
    with working(0), pytest.raises(OverWorkError, match=text):
        spend(operations)


def test_integer_products_cost_more() -> None:
    with working(200):
        spend_products(100, np.dtype(np.float32))
    with working(200), pytest.raises(OverWorkError):
        spend_products(100, np.dtype(np.int32))
