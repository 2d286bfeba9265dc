"""TensorLists made from tensors, and tensors from TensorLists."""

from __future__ import annotations

import pytest

from mobileprep.formats.dtypes import DType
from tests.ops.cases import OpCase, case, made, refused, unlike

NUMBERS = DType.INT32
LIST = made("TensorListReserve", [2, 3], 4, shape_type=NUMBERS)
SCATTERED = made("TensorListScatter", (9, 2, 3), (9,), [2, 3], shape_type=NUMBERS)

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
            "TensorListGetItem", [made("TensorListFromTensor", (9, 2, 3), (2,)), 0, (2,)], [(2, 3)]
        )
    ),
    case("TensorListGetItem", [made("TensorListFromTensor", None, [2, 3]), 0, (2,)], [(2, 3)]),
    case("TensorListFromTensor", [(), (0,)], [()]),
    case("TensorListScatter", [(9, 2, 3), (9,), [2, 3]], [()], shape_type=NUMBERS),
    case("TensorListGetItem", [SCATTERED, 0, (2,)], [(2, 3)]),
    case("TensorListScatterV2", [(9, 2, 3), (9,), [2, 3], 9], [()], shape_type=NUMBERS),
    case("TensorListScatterIntoExistingList", [LIST, (9, 2, 3), (9,)], [()]),
    case(
        "TensorListGetItem",
        [made("TensorListScatterIntoExistingList", LIST, (9, 2, 3), (9,)), 0, (2,)],
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
        [made("TensorListSplit", (9, 3), [-1, 3], (4,), shape_type=NUMBERS), 0, (2,)],
        [(-1, 3)],
    ),
    case("TensorListConcatLists", [LIST, LIST], [()]),
    case("TensorListGetItem", [made("TensorListConcatLists", LIST, LIST), 0, (2,)], [(2, 3)]),
    case("TensorListGetItem", [made("TensorListConcatLists", (), LIST), 0, (2,)], [(2, 3)]),
    case("TensorListConcat", [()], [(-1,), (-1,)], element_shape=(4,)),
    case("TensorListGetItem", [made("TensorListConcatLists", LIST, ()), 0, (2,)], [(2, 3)]),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
