"""How the values of constants are spread."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Array, Tensor
from mobileprep.inspection.node_table import weight_spreads


def spread_of(values: Array) -> object:
    return weight_spreads(Graph([constant("w", Tensor.of(values))]))


def test_counts_lie_in_equal_steps_from_the_least_to_the_greatest() -> None:
    (found,) = weight_spreads(Graph([constant("w", Tensor.of(np.arange(64, dtype=np.float32)))]))
    assert (found.node, found.dtype, found.elements, found.looked_at) == ("w", "float32", 64, 64)
    assert (found.low, found.high, found.zeros) == (0, 63, round(1 / 64, 4))
    assert sum(found.counts) == 64
    assert set(found.counts) == {2}


def test_equal_values_are_one_step() -> None:
    (found,) = weight_spreads(Graph([constant("w", Tensor.of(np.zeros(20, np.float32)))]))
    assert (found.counts[0], found.zeros) == (20, 1)


def test_of_large_constants_some_are_looked_at() -> None:
    values = np.random.default_rng(0).normal(size=200_000).astype(np.float32)
    (found,) = weight_spreads(Graph([constant("w", Tensor.of(values))]))
    assert 40_000 < found.looked_at <= 65_536
    assert sum(found.counts) == found.looked_at


def test_nan_and_infinity_are_left_out() -> None:
    values = np.array([np.nan, np.inf, *range(18)], np.float32)
    (found,) = weight_spreads(Graph([constant("w", Tensor.of(values))]))
    assert (found.low, found.high, sum(found.counts)) == (0, 17, 18)


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
def test_what_has_no_spread_is_left_out(values: Array) -> None:
    assert spread_of(values) == ()


def test_types_beyond_numpys_own() -> None:
    values = np.arange(16).astype(ml_dtypes.bfloat16)
    (found,) = weight_spreads(Graph([constant("w", Tensor.of(values))]))
    assert (found.dtype, found.high) == ("bfloat16", 15)


def test_the_largest_come_first() -> None:
    nodes = [constant(f"w{n}", Tensor.of(np.ones(n, np.float32))) for n in range(16, 60)]
    found = weight_spreads(Graph(nodes))
    assert [spread.elements for spread in found] == list(range(59, 27, -1))
