"""Validation and conversion of feeds."""

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


def feed(shape: Any, array: Any) -> np.ndarray:
    return checked_feed(Graph([placeholder(shape)]), Ref("x"), array, "g.pb")


@pytest.mark.parametrize("shape", [(2, 3), (-1, 3), (-1, -1), None, ()])
def test_valid_shapes(shape: Any) -> None:
    assert feed(shape, ONES) is ONES


@pytest.mark.parametrize(
    ("shape", "array", "expected"),
    [
        ((2, 4), ONES, "takes the shape [2, 4], and is fed [2, 3]"),
        ((-1, 2), ONES, "takes the shape [?, 2], and is fed [2, 3]"),
        ((2,), ONES, "takes the shape [2], and is fed [2, 3]"),
        ((2, 3, 1), ONES, "takes the shape [2, 3, 1], and is fed [2, 3]"),
        ((1,), np.float32(1), "takes the shape [1], and is fed a scalar"),
    ],
)
def test_invalid_shapes_are_refused(shape: Any, array: Any, expected: str) -> None:
    with pytest.raises(UsageError) as error:
        feed(shape, array)
    assert expected in error.value.message


def test_wrong_dtype_is_refused() -> None:
    with pytest.raises(UsageError, match="'x' takes float32, and is fed float64"):
        feed((2,), np.ones(2))


def test_computed_tensor_can_be_fed_with_any_shape() -> None:
    graph = Graph([placeholder((2, 3)), node("y", "Relu", "x")])
    array = np.ones(7, np.float32)
    assert checked_feed(graph, Ref("y"), array, "g.pb") is array


def test_strings_are_encoded() -> None:
    graph = Graph([unshaped("x", DType.STRING)])
    for array in (np.array(["é", "b"]), np.array(["é", b"b"], object)):
        assert checked_feed(graph, Ref("x"), array, "").tolist() == ["é".encode(), b"b"]
    # Trailing zeros of a single byte string (a file) are preserved.
    alone = checked_feed(graph, Ref("x"), np.array([[b"ab\0"]]), "")
    assert alone.tolist() == [[b"ab\0"]]


@pytest.mark.parametrize(
    ("array_dtype", "fed_dtype", "expected"),
    [
        (np.float64, DType.FLOAT, np.float32),
        (np.int64, DType.INT32, np.int32),
        (np.int64, DType.FLOAT, np.float32),
        # Other conversions are lossy: the array is not changed and is refused later.
        (np.float32, DType.INT32, np.float32),
        (np.float32, None, np.float32),
    ],
)
def test_only_dtype_widths_are_converted(
    array_dtype: Any, fed_dtype: DType | None, expected: Any
) -> None:
    assert converted(np.ones(2, array_dtype), fed_dtype).dtype == expected
