"""TensorList ops; lists are immutable values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.cases import case, case_tests, output_of, refused, unlike
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


NUMBERS = DType.INT32
LIST = output_of("TensorListReserve", [2, 3], 4, shape_type=NUMBERS)

OP_CASES = [
    case("EmptyTensorList", [[2, 3], 4], [()]),
    case("TensorListReserve", [[2, 3], 4], [()], shape_type=NUMBERS),
    case("TensorListResize", [LIST, 5], [()]),
    case("TensorListGetItem", [output_of("TensorListResize", LIST, 5), 0, (2,)], [(2, 3)]),
    case("TensorListLength", [LIST], [()]),
    case("TensorListElementShape", [LIST], [(2,)]),
    case("TensorListElementShape", [()], [None]),
    case("TensorListSetItem", [LIST, 0, (2, 3)], [()]),
    case("TensorListGetItem", [output_of("TensorListSetItem", LIST, 0, (2, 3)), 0, (2,)], [(2, 3)]),
    case("TensorListGetItem", [LIST, 0, [-1, 3]], [(2, 3)]),
    case("TensorListGetItem", [(), 0, [-1, 3]], [(-1, 3)]),
    case("TensorListGetItem", [(), 0, -1], [None]),
    refused("TensorListGetItem", [LIST, 0, [2, 4]]),
    case("TensorListPushBack", [LIST, (2, 3)], [()]),
    case("TensorListGetItem", [output_of("TensorListPushBack", LIST, (2, 3)), 0, (2,)], [(2, 3)]),
    case("TensorListPopBack", [LIST, (2,)], [(), (2, 3)]),
    case("TensorListPopBack", [(), [-1, 5]], [(), None]),
    case("TensorListGetItem", [output_of("TensorListPopBack", LIST, (2,)), 0, (2,)], [(2, 3)]),
    case("TensorListGetItem", [output_of("EmptyTensorList", [4, 3], 9), 0, (2,)], [(4, 3)]),
]


def test_list_element_shape() -> None:
    def element_shape(shape: object) -> object:
        kinds = {"element_dtype": np.float32, "shape_type": np.int32}
        graph = Graph(
            [
                *(c("shape", shape), c("count", 2)),
                n("list", "TensorListReserve", "shape", "count", **kinds),
                n("y", "TensorListElementShape", "list", shape_type=np.int32),
            ]
        )
        return Interpreter(graph).run(["y"], {})[0].tolist()

    assert element_shape([2, -1]) == [2, -1]
    assert element_shape(-1) == -1


SCATTERED = output_of("TensorListScatter", (9, 2, 3), (9,), [2, 3], shape_type=NUMBERS)

OP_CASES += [
    case("TensorListStack", [LIST, (2,)], [(-1, 2, 3)]),
    case("TensorListStack", [LIST, (2,)], [(4, 2, 3)], num_elements=4),
    case("TensorListStack", [(), -1], [None]),
    refused("TensorListStack", [LIST, [2, 4]]),
    case("TensorListGather", [LIST, (5,), (2,)], [(5, 2, 3)]),
    case("TensorListGather", [(), (5,), [2, -1]], [(5, 2, -1)]),
    refused("TensorListGather", [LIST, (5,), [2, 4]]),
    case("TensorListFromTensor", [(9, 2, 3), (2,)], [()]),
    unlike(
        case(
            "TensorListGetItem",
            [output_of("TensorListFromTensor", (9, 2, 3), (2,)), 0, (2,)],
            [(2, 3)],
        )
    ),
    case("TensorListGetItem", [output_of("TensorListFromTensor", None, [2, 3]), 0, (2,)], [(2, 3)]),
    case("TensorListFromTensor", [(), (0,)], [()]),
    case("TensorListScatter", [(9, 2, 3), (9,), [2, 3]], [()], shape_type=NUMBERS),
    case("TensorListGetItem", [SCATTERED, 0, (2,)], [(2, 3)]),
    case("TensorListScatterV2", [(9, 2, 3), (9,), [2, 3], 9], [()], shape_type=NUMBERS),
    case("TensorListScatterIntoExistingList", [LIST, (9, 2, 3), (9,)], [()]),
    case(
        "TensorListGetItem",
        [output_of("TensorListScatterIntoExistingList", LIST, (9, 2, 3), (9,)), 0, (2,)],
        [(2, 3)],
    ),
    case("TensorListConcat", [LIST], [(-1, 3), (-1,)]),
    case("TensorListConcat", [()], [(-1, 5), (-1,)], element_shape=(-1, 5)),
    case("TensorListConcat", [()], [None, (-1,)]),
    case("TensorListConcatV2", [LIST, (2,), (4,)], [(-1, 3), (-1,)], shape_type=NUMBERS),
    case("TensorListConcatV2", [(), [-1, 5], (4,)], [(-1, 5), (-1,)], shape_type=NUMBERS),
    refused("TensorListConcatV2", [LIST, [2, 4], (4,)], shape_type=NUMBERS),
    unlike(refused("TensorListConcat", [()], element_shape=())),
    case("TensorListSplit", [(9, 3), [-1, 3], (4,)], [()], shape_type=NUMBERS),
    case(
        "TensorListGetItem",
        [output_of("TensorListSplit", (9, 3), [-1, 3], (4,), shape_type=NUMBERS), 0, (2,)],
        [(-1, 3)],
    ),
    case("TensorListConcatLists", [LIST, LIST], [()]),
    case("TensorListGetItem", [output_of("TensorListConcatLists", LIST, LIST), 0, (2,)], [(2, 3)]),
    case("TensorListGetItem", [output_of("TensorListConcatLists", (), LIST), 0, (2,)], [(2, 3)]),
    case("TensorListConcat", [()], [(-1,), (-1,)], element_shape=(4,)),
    case("TensorListGetItem", [output_of("TensorListConcatLists", LIST, ()), 0, (2,)], [(2, 3)]),
]


SHAPELESS = c("shape", -1)
FLOATS = {"element_dtype": np.float32}
LISTS = {**FLOATS, "shape_type": np.int32}


def list_joining_run_nodes(*nodes: Node, names: tuple[str, ...] = ("out",)) -> list[Any]:
    graph = Graph([SHAPELESS, *nodes])
    return [a.tolist() for a in Interpreter(graph).run(list(names), {})]


def scatter(rows: Any, places: list[int], count: int) -> list[Any]:
    return list_joining_run_nodes(
        *(c("rows", rows, dtype=np.float32), c("places", places), c("count", count)),
        n("list", "TensorListScatterV2", "rows", "places", "shape", "count", **LISTS),
        n("out", "TensorListStack", "list", "shape", **FLOATS),
        n("length", "TensorListLength", "list"),
        names=("out", "length"),
    )


def test_scatter() -> None:
    assert scatter([7, 8, 9], [2, 0, 1], -1) == [[8, 9, 7], 3]
    assert scatter([[1, 2], [3, 4]], [1, 0], 2) == [[[3, 4], [1, 2]], 2]


@pytest.mark.parametrize(
    ("rows", "places", "count"),
    [(7, [0], -1), ([7, 8], [0], -1), ([7], [0, 1], -1), ([7], [1], 1), ([7], [-1], 2)],
)
def test_invalid_scatter_is_refused(rows: Any, places: list[int], count: int) -> None:
    with pytest.raises(InvalidGraphError, match=r"places for a tensor|no element"):
        scatter(rows, places, count)


def split(x: Any, lengths: list[int]) -> list[Any]:
    return list_joining_run_nodes(
        *(c("x", x, dtype=np.float32), c("lengths", lengths, dtype=np.int64)),
        *(c("none", [], dtype=np.int64), c("zero", 0)),
        n("list", "TensorListSplit", "x", "shape", "lengths", **LISTS),
        n("out", "TensorListConcatV2", "list", "shape", "none", **LISTS),
        n("first", "TensorListGetItem", "list", "zero", "shape", **FLOATS),
        names=("out", "out:1", "first"),
    )


def test_list_joining_split_and_concat() -> None:
    assert split([5, 6, 7], [2, 0, 1]) == [[5, 6, 7], [2, 0, 1], [5, 6]]
    for lengths in ([2], [4, -1]):
        with pytest.raises(InvalidGraphError, match="do not fit the shape"):
            split([5, 6, 7], lengths)


def test_concat_lists() -> None:
    result = list_joining_run_nodes(
        *(c("a", [1.0, 2.0]), c("b", [3.0]), c("which", [2, 0])),
        n("first", "TensorListFromTensor", "a", "shape", **LISTS),
        n("second", "TensorListFromTensor", "b", "shape", **LISTS),
        n("both", "TensorListConcatLists", "first", "second", **FLOATS),
        n("out", "TensorListGather", "both", "which", "shape", **FLOATS),
    )
    assert result == [[3, 1]]


def test_stack_of_wrong_length_is_refused() -> None:
    def stack(count: int) -> list[Any]:
        return list_joining_run_nodes(
            c("a", [1.0, 2.0]),
            n("list", "TensorListFromTensor", "a", "shape", **LISTS),
            n("out", "TensorListStack", "list", "shape", **FLOATS, num_elements=count),
        )

    assert stack(-1) == stack(2) == [[1, 2]]
    with pytest.raises(InvalidGraphError, match="2 elements, and 1 are expected"):
        stack(1)


test_shapes_and_costs = case_tests(OP_CASES)
