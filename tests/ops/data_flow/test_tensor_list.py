"""TensorLists: values, so that changing one leaves the other as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.graphs import c, n

F32 = {"element_dtype": np.float32}


def results(fetches: list[str], *nodes: Node) -> list[Any]:
    base = [
        c("shape", [2]),
        c("any", -1),
        c("three", 3),
        c("zero", 0),
        c("one", 1),
        c("rows", [[1.0, 2.0], [3.0, 4.0]]),
        n("list", "TensorListFromTensor", "rows", "shape", **F32),
    ]
    return [a.tolist() for a in Interpreter(Graph([*base, *nodes])).run(fetches, {})]


def test_slices_of_a_tensor_and_back() -> None:
    found = results(
        ["length", "item", "stack", "some"],
        n("length", "TensorListLength", "list"),
        n("item", "TensorListGetItem", "list", "one", "shape", **F32),
        n("stack", "TensorListStack", "list", "shape", **F32),
        c("places", [1, 1]),
        n("some", "TensorListGather", "list", "places", "shape", **F32),
    )
    assert found == [2, [3, 4], [[1, 2], [3, 4]], [[3, 4], [3, 4]]]


def test_changing_a_list_makes_another() -> None:
    found = results(
        ["before", "after"],
        c("value", [9.0, 9.0]),
        n("changed", "TensorListSetItem", "list", "zero", "value", **F32),
        n("before", "TensorListStack", "list", "shape", **F32),
        n("after", "TensorListStack", "changed", "shape", **F32),
    )
    assert found == [[[1, 2], [3, 4]], [[9, 9], [3, 4]]]


def test_growing_and_shrinking() -> None:
    found = results(
        ["grown", "last", "length"],
        c("limit", -1),
        n("empty", "EmptyTensorList", "shape", "limit", **F32),
        c("value", [9.0, 9.0]),
        n("pushed", "TensorListPushBack", "empty", "value", **F32),
        n("both", "TensorListConcatLists", "list", "pushed", **F32),
        n("grown", "TensorListStack", "both", "shape", **F32),
        n("popped", "TensorListPopBack", "both", "shape", **F32),
        n("last", "Identity", "popped:1"),
        n("cut", "TensorListResize", "both", "one"),
        n("length", "TensorListLength", "cut"),
    )
    assert found == [[[1, 2], [3, 4], [9, 9]], [9, 9], 1]


def test_elements_that_were_not_set_are_zeros() -> None:
    found = results(
        ["stack", "known"],
        n("blank", "TensorListReserve", "any", "three", **F32),
        c("places", [2]),
        c("row", [[5.0, 6.0]]),
        n("filled", "TensorListScatterIntoExistingList", "blank", "row", "places", **F32),
        n("stack", "TensorListStack", "filled", "any", **F32),
        n("reserved", "TensorListReserve", "shape", "one", **F32),
        n("known", "TensorListStack", "reserved", "any", **F32),
    )
    assert found == [[[0, 0], [0, 0], [5, 6]], [[0, 0]]]


def test_joined_and_cut_along_the_first_axis() -> None:
    found = results(
        ["joined", "joined:1", "again"],
        c("lengths", [1, 3], dtype=np.int64),
        c("long", [1.0, 2.0, 3.0, 4.0]),
        n("cut", "TensorListSplit", "long", "any", "lengths", **F32),
        c("leading", [], dtype=np.int64),
        n("joined", "TensorListConcatV2", "cut", "any", "leading", **F32),
        n("again", "TensorListGetItem", "cut", "one", "any", **F32),
    )
    assert found == [[1, 2, 3, 4], [1, 3], [2, 3, 4]]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (n("y", "TensorListGetItem", "list", "three", "shape", **F32), "no element 3 among 2"),
        (n("y", "TensorListSetItem", "list", "three", "rows", **F32), "no element 3 among 2"),
        (n("y", "TensorListPushBack", "list", "three", **F32), "cannot hold int32"),
        (n("y", "TensorListLength", "rows"), "is not a TensorList"),
        (n("y", "TensorListStack", "list", "shape", **F32, num_elements=5), "5 are expected"),
    ],
)
def test_what_cannot_be_is_refused(node: Node, message: str) -> None:
    with pytest.raises(InvalidGraphError, match=message):
        results(["y"], node)
