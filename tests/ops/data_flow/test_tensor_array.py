"""TensorArrays."""

from __future__ import annotations

import pytest

from tests.ops.cases import OpCase, case, made, refused, unlike

ARRAY = made("TensorArrayV3", 4, element_shape=(2, 3), identical_element_shapes=True)
MIXED = made("TensorArrayV3", 4, element_shape=(2, 3))

OP_CASES = [
    case("TensorArrayV3", [4], [(2,), ()]),
    case("TensorArrayV2", [4], [(2,)]),
    case("TensorArrayWriteV3", [ARRAY, 0, (2, 3), ()], [()]),
    case("TensorArrayWriteV2", [(2,), 0, (3,), ()], [()]),
    case("TensorArrayReadV3", [ARRAY, 0, ()], [(2, 3)]),
    unlike(case("TensorArrayReadV3", [MIXED, 0, ()], [None])),
    case("TensorArrayReadV2", [(2,), 0, ()], [None]),
    unlike(case("TensorArrayGatherV3", [ARRAY, (4,), ()], [(4, 2, 3)])),
    unlike(case("TensorArrayGatherV3", [MIXED, (4,), ()], [(4, 2, 3)], element_shape=(2, 3))),
    unlike(case("TensorArrayGatherV3", [MIXED, (4,), ()], [None])),
    refused("TensorArrayGatherV3", [ARRAY, (4, 1), ()]),
    unlike(case("TensorArrayGatherV2", [(2,), (4,), ()], [(4, 5)], element_shape=(5,))),
    case("TensorArrayScatterV3", [ARRAY, (4,), (4, 2, 3), ()], [()]),
    case("TensorArrayScatterV2", [(2,), (4,), (4, 2, 3), ()], [()]),
    case("TensorArrayConcatV3", [ARRAY, ()], [None, (-1,)]),
    case("TensorArrayConcatV2", [(2,), ()], [None, (-1,)]),
    case("TensorArraySplitV3", [ARRAY, (9,), (4,), ()], [()]),
    case("TensorArraySplitV2", [(2,), (9,), (4,), ()], [()]),
    case("TensorArraySizeV3", [ARRAY, ()], [()]),
    case("TensorArraySizeV2", [(2,), ()], [()]),
    case("TensorArrayCloseV3", [ARRAY], []),
    case("TensorArrayCloseV2", [(2,)], []),
    case("TensorArrayGradV3", [ARRAY, ()], [(2,), ()], source="x"),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
