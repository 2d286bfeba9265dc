"""A convolution with what follows it."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.ops.context import RunContext
from mobileprep.runtime.convolution_epilogue import FusedConvolution
from tests.transforms.graphs import conv

SCALE, SHIFT = np.array([2, 1], np.float32), np.array([-3, 10], np.float32)


def fused(activation: str = "") -> FusedConvolution:
    """One pixel of one channel, times 1 and 5; twice the first, less 3; the second, and 10."""
    filters = np.array([[[[1, 5]]]], np.float32)
    return FusedConvolution.prepared(conv("conv", "x w"), filters, SCALE, SHIFT, activation)


def pixel(value: float, kind: type = np.float32) -> np.ndarray:
    return np.full((1, 1, 1, 1), value, kind)


@pytest.mark.parametrize(
    ("activation", "expected"), [("", [-1, 15]), ("Relu", [0, 15]), ("Relu6", [0, 6])]
)
def test_scale_shift_and_activation_follow_in_this_order(
    activation: str, expected: list[float]
) -> None:
    (out,) = fused(activation)(RunContext(), (pixel(1),))
    assert out.ravel().tolist() == expected


def test_a_sum_comes_before_the_activation() -> None:
    for residual in (np.full((1, 1, 1, 2), -4, np.float32), np.full((1,), -4, np.float32)):
        (out,) = fused("Relu")(RunContext(), (pixel(1), residual))
        assert out.ravel().tolist() == [0, 11]


@pytest.mark.parametrize("x", [pixel(1, np.float64), pixel(1)[0]], ids=["type", "rank"])
def test_other_types_and_ranks_are_refused(x: np.ndarray) -> None:
    with pytest.raises(ValueError, match="a float32 tensor of four axes is needed"):
        fused()(RunContext(), (x,))


def test_an_infinity_stays_where_the_filters_meet_it() -> None:
    filters = np.ones((3, 3, 48, 48), np.float32)
    ones, zeros = np.ones(48, np.float32), np.zeros(48, np.float32)
    run = FusedConvolution.prepared(conv("conv", "x w"), filters, ones, zeros, "Relu")
    x = np.ones((1, 28, 28, 48), np.float32)
    (fast,) = run(RunContext(), (x,))
    x[0, 9, 9, 0] = np.inf
    with np.errstate(all="ignore"):
        (out,) = run(RunContext(), (x,))
    assert np.argwhere(np.isinf(out[0, :, :, 0])).tolist() == [
        [i, j] for i in (8, 9, 10) for j in (8, 9, 10)
    ]
    there = np.isfinite(out)
    np.testing.assert_allclose(out[there], fast[there], rtol=1e-5)


def test_inputs_of_other_sizes_take_the_same_transformed_filters() -> None:
    filters = np.random.default_rng(0).normal(size=(3, 3, 48, 48)).astype(np.float32)
    ones, zeros = np.ones(48, np.float32), np.zeros(48, np.float32)
    run = FusedConvolution.prepared(conv("conv", "x w"), filters, ones, zeros, "")
    small, large = (np.ones((1, n, n, 48), np.float32) for n in (28, 36))
    first = run.way(small).winograd
    second = run.way(large).winograd
    assert first is not None
    assert second is not None
    assert first.bank is second.bank
    for x in (small, large, small):
        (out,) = run(RunContext(), (x,))
        sums = filters.sum(axis=(0, 1, 2), dtype=np.float64)
        np.testing.assert_allclose(out[0, 9, 9], sums, atol=1e-4 * np.abs(sums).max())
        assert out.shape == x.shape
