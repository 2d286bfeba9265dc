"""Subgraphs between feeds and fetches."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.runtime.engines.subgraph import checked_feeds, cut_out
from mobileprep.runtime.interpreter import Interpreter
from tests.transforms.graphs import const, node, normal, placeholder

GRAPH = Graph(
    [
        placeholder(),
        placeholder("other"),
        const("two", 2.0),
        node("parts", "Split", "axis x", num_split=2),
        const("axis", 0, np.int32),
        node("double", "Mul", "parts:1 two"),
        node("late", "Neg", "double ^x ^other"),
        node("sum", "AddV2", "late other"),
    ]
)


def cut(fetches: list[str], **feeds: np.ndarray):
    return cut_out(GRAPH, fetches, {k.replace("_", ":"): v for k, v in feeds.items()}, "graph")


def test_subgraph_computes_the_same() -> None:
    x, other = normal(4, 3), normal(2, 3, seed=1)
    part = cut(["sum", "double"], x=x, other=other)
    fed = dict(zip(part.inputs, (x, other), strict=True))
    result = Interpreter(part.graph).run(list(part.outputs), fed)
    expected = Interpreter(GRAPH).run(["sum", "double"], {"x": x, "other": other})
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_placeholders_have_fed_shapes_and_types() -> None:
    part = cut(["double"], x=normal(4, 3))
    fed = part.graph[part.inputs[0]]
    assert fed.attr_shape("shape") == (4, 3)
    assert fed.attr_dtype("dtype") is DType.FLOAT


def test_inner_tensor_can_be_fed() -> None:
    part = cut(["double"], parts_1=normal(2, 3))
    assert {n.op for n in part.graph} == {"Placeholder", "Const", "Mul", "Identity"}


def test_control_inputs_from_feeds_are_removed() -> None:
    part = cut(["late"], x=normal(4, 3), other=normal(2, 3))
    assert all(not r.is_control for n in part.graph for r in n.inputs)


def test_feed_can_be_fetched() -> None:
    x = normal(2)
    part = cut(["x"], x=x)
    [result] = Interpreter(part.graph).run(list(part.outputs), {part.inputs[0]: x})
    np.testing.assert_array_equal(result, x)


def test_missing_feed_is_named() -> None:
    with pytest.raises(UsageError, match="'other'"):
        cut(["sum"], x=normal(4, 3))


@pytest.mark.parametrize("name", ["nothing", "double:1", "^x"])
def test_unknown_fetches_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not in the graph"):
        cut([name], x=normal(4, 3))


def test_invalid_feeds_are_refused() -> None:
    with pytest.raises(UsageError, match="'x' takes float32"):
        checked_feeds(GRAPH, {"x": np.zeros(3)}, "graph")
    with pytest.raises(UsageError, match="the feed 'y' is not in the graph"):
        checked_feeds(GRAPH, {"y": normal(3)}, "graph")
