"""Sample inputs."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError, UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.ir import attrs as attr
from mobileprep.ir.graph import Graph
from mobileprep.ir.node import Node
from mobileprep.ops.samples import sample_feeds


def graph(dtype: DType = DType.FLOAT, shape: tuple[int, ...] | None = (-1, 3)) -> Graph:
    attrs = {"dtype": attr.dtype(dtype), "shape": attr.shape(shape)}
    return Graph([Node("x", "Placeholder", attrs=attrs)])


def test_floats_lie_between_zero_and_one() -> None:
    x = sample_feeds(graph(), ["x"], batch=50)["x"]
    assert (x.shape, x.dtype) == ((50, 3), np.float32)
    assert 0 <= x.min() < 0.2 < 0.8 < x.max() < 1


def test_integers_are_zero_or_one() -> None:
    x = sample_feeds(graph(DType.INT64), ["x:0"], batch=50)["x:0"]
    assert x.dtype == np.int64
    assert set(x.ravel().tolist()) == {0, 1}


def test_a_truth_value_of_unknown_shape_is_one() -> None:
    x = sample_feeds(graph(DType.BOOL, None), ["x"])["x"]
    assert (x.shape, x.dtype, bool(x)) == ((), np.bool_, False)


def test_the_same_graph_gets_the_same_samples() -> None:
    first, second = (sample_feeds(graph(), ["x"])["x"] for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (graph(shape=None), "does not tell the whole shape"),
        (graph(shape=(1, -1)), "does not tell the whole shape"),
        (graph(DType.STRING), "no sample can be made"),
        (graph(shape=(1 << 20, 1 << 20)), "too large"),
    ],
)
def test_what_cannot_be_sampled_is_told(model: Graph, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        sample_feeds(model, ["x"])


def test_an_input_that_is_not_there_is_told() -> None:
    with pytest.raises(InvalidGraphError, match="'y' is not in the graph"):
        sample_feeds(graph(), ["y"])
