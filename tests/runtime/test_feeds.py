"""What is fed, checked and converted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import UsageError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.refs import Ref
from mobileprep.runtime.interpreter import checked_feed, converted
from tests.building.stages.jobs import placeholder
from tests.transforms.graphs import node
from tests.transforms.graphs import placeholder as unshaped

ONES = np.ones((2, 3), np.float32)


def fed(shape: Any, array: Any) -> np.ndarray:
    return checked_feed(Graph([placeholder(shape)]), Ref("x"), array, "g.pb")


@pytest.mark.parametrize("shape", [(2, 3), (-1, 3), (-1, -1), None, ()])
def test_shapes_that_fit(shape: Any) -> None:
    assert fed(shape, ONES) is ONES


@pytest.mark.parametrize(
    ("shape", "array", "told"),
    [
        ((2, 4), ONES, "takes the shape [2, 4], and is fed [2, 3]"),
        ((-1, 2), ONES, "takes the shape [?, 2], and is fed [2, 3]"),
        ((2,), ONES, "takes the shape [2], and is fed [2, 3]"),
        ((2, 3, 1), ONES, "takes the shape [2, 3, 1], and is fed [2, 3]"),
        ((1,), np.float32(1), "takes the shape [1], and is fed a scalar"),
    ],
)
def test_shapes_that_do_not_fit(shape: Any, array: Any, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        fed(shape, array)
    assert told in caught.value.message


def test_types_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match="'x' takes float32, and is fed float64"):
        fed((2,), np.ones(2))


def test_what_is_computed_may_be_fed_in_any_shape() -> None:
    graph = Graph([placeholder((2, 3)), node("y", "Relu", "x")])
    array = np.ones(7, np.float32)
    assert checked_feed(graph, Ref("y"), array, "g.pb") is array


def test_text_becomes_bytes() -> None:
    graph = Graph([unshaped("x", DType.STRING)])
    for array in (np.array(["é", "b"]), np.array(["é", b"b"], object)):
        assert checked_feed(graph, Ref("x"), array, "").tolist() == ["é".encode(), b"b"]
    # A single text is a file, whose last zeros count.
    alone = checked_feed(graph, Ref("x"), np.array([[b"ab\0"]]), "")
    assert alone.tolist() == [[b"ab\0"]]


@pytest.mark.parametrize(
    ("given", "wanted", "found"),
    [
        (np.float64, DType.FLOAT, np.float32),
        (np.int64, DType.INT32, np.int32),
        (np.int64, DType.FLOAT, np.float32),
        # What would lose more than width stays, and is refused later.
        (np.float32, DType.INT32, np.float32),
        (np.float32, None, np.float32),
    ],
)
def test_only_widths_are_converted(given: Any, wanted: DType | None, found: Any) -> None:
    assert converted(np.ones(2, given), wanted).dtype == found
