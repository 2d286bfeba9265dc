"""Distributions of the values of constants."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.inspection.node_table import Spread, weight_spreads


def spreads(values: Array) -> tuple[Spread, ...]:
    return weight_spreads(Graph([constant("w", Tensor.of(values))]))


def test_histogram_has_equal_bins() -> None:
    (spread,) = spreads(np.arange(64, dtype=np.float32))
    assert (spread.node, spread.dtype, spread.elements) == ("w", "float32", 64)
    assert (spread.low, spread.high, spread.zeros) == (0, 63, round(1 / 64, 4))
    assert spread.looked_at == sum(spread.counts) == 64
    assert set(spread.counts) == {2}


def test_equal_values_have_one_bin() -> None:
    (spread,) = spreads(np.zeros(20, np.float32))
    assert (spread.counts[0], spread.zeros) == (20, 1)


def test_large_constants_are_sampled() -> None:
    (spread,) = spreads(np.random.default_rng(0).normal(size=200_000).astype(np.float32))
    assert 40_000 < spread.looked_at <= 65_536
    assert sum(spread.counts) == spread.looked_at


def test_nan_and_infinity_are_excluded() -> None:
    (spread,) = spreads(np.array([np.nan, np.inf, *range(18)], np.float32))
    assert (spread.low, spread.high, sum(spread.counts)) == (0, 17, 18)


@pytest.mark.parametrize(
    "values",
    [
        np.full(20, np.nan, np.float32),
        np.ones(15, np.float32),
        np.ones(20, bool),
        np.array([b"text"] * 20, object),
        np.array([-1.7e308, 1.7e308] * 10),
    ],
)
def test_constants_without_a_distribution_are_omitted(values: Array) -> None:
    assert spreads(values) == ()


def test_bfloat16() -> None:
    (spread,) = spreads(np.arange(16).astype(ml_dtypes.bfloat16))
    assert (spread.dtype, spread.high) == ("bfloat16", 15)


def test_largest_constants_come_first() -> None:
    nodes = [constant(f"w{n}", Tensor.of(np.ones(n, np.float32))) for n in range(16, 60)]
    sizes = [spread.elements for spread in weight_spreads(Graph(nodes))]
    assert sizes == list(range(59, 27, -1))
