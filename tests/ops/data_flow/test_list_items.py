"""TensorList element ops."""

from __future__ import annotations

import numpy as np

from mobileprep.formats.dtypes import DType
from mobileprep.graph.graph import Graph
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.cases import case, case_tests, output_of, refused
from tests.ops.graphs import c, n

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

test_shapes_and_costs = case_tests(OP_CASES)


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
