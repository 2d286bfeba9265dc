"""TensorLists and their elements."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.cases import OpCase, case, made, refused
from tests.ops.graphs import c, n

NUMBERS = DType.INT32
LIST = made("TensorListReserve", [2, 3], 4, shape_type=NUMBERS)

OP_CASES = [
    case("EmptyTensorList", [[2, 3], 4], [()]),
    case("TensorListReserve", [[2, 3], 4], [()], shape_type=NUMBERS),
    case("TensorListResize", [LIST, 5], [()]),
    case("TensorListGetItem", [made("TensorListResize", LIST, 5), 0, (2,)], [(2, 3)]),
    case("TensorListLength", [LIST], [()]),
    case("TensorListElementShape", [LIST], [(2,)]),
    case("TensorListElementShape", [()], [None]),
    case("TensorListSetItem", [LIST, 0, (2, 3)], [()]),
    case("TensorListGetItem", [made("TensorListSetItem", LIST, 0, (2, 3)), 0, (2,)], [(2, 3)]),
    case("TensorListGetItem", [LIST, 0, [-1, 3]], [(2, 3)]),
    case("TensorListGetItem", [(), 0, [-1, 3]], [(-1, 3)]),
    case("TensorListGetItem", [(), 0, -1], [None]),
    refused("TensorListGetItem", [LIST, 0, [2, 4]]),
    case("TensorListPushBack", [LIST, (2, 3)], [()]),
    case("TensorListGetItem", [made("TensorListPushBack", LIST, (2, 3)), 0, (2,)], [(2, 3)]),
    case("TensorListPopBack", [LIST, (2,)], [(), (2, 3)]),
    case("TensorListPopBack", [(), [-1, 5]], [(), None]),
    case("TensorListGetItem", [made("TensorListPopBack", LIST, (2,)), 0, (2,)], [(2, 3)]),
    case("TensorListGetItem", [made("EmptyTensorList", [4, 3], 9), 0, (2,)], [(4, 3)]),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()


def test_the_elements_shape_is_told() -> None:
    def told(shape: object) -> object:
        kinds = {"element_dtype": np.float32, "shape_type": np.int32}
        graph = Graph(
            [
                *(c("shape", shape), c("count", 2)),
                n("list", "TensorListReserve", "shape", "count", **kinds),
                n("y", "TensorListElementShape", "list", shape_type=np.int32),
            ]
        )
        return Interpreter(graph).run(["y"], {})[0].tolist()

    assert told([2, -1]) == [2, -1]
    assert told(-1) == -1
