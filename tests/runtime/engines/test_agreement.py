"""Comparison of engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import pytest

from mobileprep.runtime.engines.agreement import check_agreement, relative_difference


class Fixed:
    """An engine with fixed outputs."""

    def __init__(self, name: str, *outputs: np.ndarray) -> None:
        self.name = name
        self._outputs = outputs

    def run(self, fetches: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return list(self._outputs)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_largest_difference_is_reported() -> None:
    near, far = Fixed("a", f32(1, 2), f32(1, 4)), Fixed("b", f32(1, 2), f32(1.002, 4))
    agreement = check_agreement(near, far, ["x", "y"], {})
    assert (agreement.engine, agreement.reference, agreement.fetch) == ("a", "b", "y")
    assert agreement.largest == pytest.approx(0.002 / 4, rel=1e-3)
    assert not agreement.holds
    assert str(agreement) == (
        "a does not agree with b: apart by 5.0e-04 of the largest value (in y)"
    )


def test_rounding_is_allowed() -> None:
    agreement = check_agreement(Fixed("a", f32(1, 1e-6)), Fixed("b", f32(1, 2e-6)), ["x"], {})
    assert agreement.holds


def test_no_fetches_agree() -> None:
    assert check_agreement(Fixed("a"), Fixed("b"), [], {}).holds


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (f32(1), f32(1, 2)),
        (f32(1), np.array([1.0])),
        (np.array([1]), np.array([2])),
        (f32(np.nan), f32(1)),
        (f32(np.inf), f32(-np.inf)),
        (np.array([b"a"], object), np.array([b"b"], object)),
    ],
)
def test_incomparable_tensors_differ_infinitely(result, expected) -> None:
    assert relative_difference(result, expected) == np.inf


@pytest.mark.parametrize(
    "value",
    [
        f32(np.nan, np.inf, 1),
        np.array([1, 2]),
        np.array([b"a"], object),
        np.zeros(0, np.float32),
        f32(0),
        np.array([1.5], ml_dtypes.bfloat16),
        np.array([1 + 2j], np.complex64),
    ],
)
def test_equal_tensors_have_no_difference(value: np.ndarray) -> None:
    assert relative_difference(value, value.copy()) == 0
