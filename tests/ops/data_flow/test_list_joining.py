"""Conversion between tensors and TensorLists."""

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

NUMBERS = DType.INT32
LIST = output_of("TensorListReserve", [2, 3], 4, shape_type=NUMBERS)
SCATTERED = output_of("TensorListScatter", (9, 2, 3), (9,), [2, 3], shape_type=NUMBERS)

OP_CASES = [
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

test_shapes_and_costs = case_tests(OP_CASES)


SHAPELESS = c("shape", -1)
FLOATS = {"element_dtype": np.float32}
LISTS = {**FLOATS, "shape_type": np.int32}


def run_nodes(*nodes: Node, names: tuple[str, ...] = ("out",)) -> list[Any]:
    graph = Graph([SHAPELESS, *nodes])
    return [a.tolist() for a in Interpreter(graph).run(list(names), {})]


def scatter(rows: Any, places: list[int], count: int) -> list[Any]:
    return run_nodes(
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
    return run_nodes(
        *(c("x", x, dtype=np.float32), c("lengths", lengths, dtype=np.int64)),
        *(c("none", [], dtype=np.int64), c("zero", 0)),
        n("list", "TensorListSplit", "x", "shape", "lengths", **LISTS),
        n("out", "TensorListConcatV2", "list", "shape", "none", **LISTS),
        n("first", "TensorListGetItem", "list", "zero", "shape", **FLOATS),
        names=("out", "out:1", "first"),
    )


def test_split_and_concat() -> None:
    assert split([5, 6, 7], [2, 0, 1]) == [[5, 6, 7], [2, 0, 1], [5, 6]]
    for lengths in ([2], [4, -1]):
        with pytest.raises(InvalidGraphError, match="do not fit the shape"):
            split([5, 6, 7], lengths)


def test_concat_lists() -> None:
    result = run_nodes(
        *(c("a", [1.0, 2.0]), c("b", [3.0]), c("which", [2, 0])),
        n("first", "TensorListFromTensor", "a", "shape", **LISTS),
        n("second", "TensorListFromTensor", "b", "shape", **LISTS),
        n("both", "TensorListConcatLists", "first", "second", **FLOATS),
        n("out", "TensorListGather", "both", "which", "shape", **FLOATS),
    )
    assert result == [[3, 1]]


def test_stack_of_wrong_length_is_refused() -> None:
    def stack(count: int) -> list[Any]:
        return run_nodes(
            c("a", [1.0, 2.0]),
            n("list", "TensorListFromTensor", "a", "shape", **LISTS),
            n("out", "TensorListStack", "list", "shape", **FLOATS, num_elements=count),
        )

    assert stack(-1) == stack(2) == [[1, 2]]
    with pytest.raises(InvalidGraphError, match="2 elements, and 1 are expected"):
        stack(1)
