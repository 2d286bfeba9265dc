"""TensorList ops; lists are immutable values."""

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


def run_nodes(fetches: list[str], *nodes: Node) -> list[Any]:
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


def test_list_from_and_to_tensor() -> None:
    result = run_nodes(
        ["length", "item", "stack", "some"],
        n("length", "TensorListLength", "list"),
        n("item", "TensorListGetItem", "list", "one", "shape", **F32),
        n("stack", "TensorListStack", "list", "shape", **F32),
        c("places", [1, 1]),
        n("some", "TensorListGather", "list", "places", "shape", **F32),
    )
    assert result == [2, [3, 4], [[1, 2], [3, 4]], [[3, 4], [3, 4]]]


def test_set_item_does_not_change_the_old_list() -> None:
    result = run_nodes(
        ["before", "after"],
        c("value", [9.0, 9.0]),
        n("changed", "TensorListSetItem", "list", "zero", "value", **F32),
        n("before", "TensorListStack", "list", "shape", **F32),
        n("after", "TensorListStack", "changed", "shape", **F32),
    )
    assert result == [[[1, 2], [3, 4]], [[9, 9], [3, 4]]]


def test_push_pop_concat_and_resize() -> None:
    result = run_nodes(
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
    assert result == [[[1, 2], [3, 4], [9, 9]], [9, 9], 1]


def test_unset_elements_are_zeros() -> None:
    result = run_nodes(
        ["stack", "known"],
        n("blank", "TensorListReserve", "any", "three", **F32),
        c("places", [2]),
        c("row", [[5.0, 6.0]]),
        n("filled", "TensorListScatterIntoExistingList", "blank", "row", "places", **F32),
        n("stack", "TensorListStack", "filled", "any", **F32),
        n("reserved", "TensorListReserve", "shape", "one", **F32),
        n("known", "TensorListStack", "reserved", "any", **F32),
    )
    assert result == [[[0, 0], [0, 0], [5, 6]], [[0, 0]]]


def test_split_and_concat() -> None:
    result = run_nodes(
        ["joined", "joined:1", "again"],
        c("lengths", [1, 3], dtype=np.int64),
        c("long", [1.0, 2.0, 3.0, 4.0]),
        n("cut", "TensorListSplit", "long", "any", "lengths", **F32),
        c("leading", [], dtype=np.int64),
        n("joined", "TensorListConcatV2", "cut", "any", "leading", **F32),
        n("again", "TensorListGetItem", "cut", "one", "any", **F32),
    )
    assert result == [[1, 2, 3, 4], [1, 3], [2, 3, 4]]


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
def test_invalid_list_op_is_refused(node: Node, message: str) -> None:
    with pytest.raises(InvalidGraphError, match=message):
        run_nodes(["y"], node)
