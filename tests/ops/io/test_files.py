"""Files."""

from __future__ import annotations

import pytest

from mobileprep.formats.dtypes import DType
from tests.ops.cases import OpCase, case

OP_CASES = [
    case("ReadFile", [()], [()]),
    case("WriteFile", [(), ()], []),
    case("SerializeTensor", [(2, 3)], [()]),
    case("ParseTensor", [()], [None], out_type=DType.FLOAT),
    case("ShardedFilename", [(), (), ()], [()]),
    case("MergeV2Checkpoints", [(3,), ()], []),
    case("RestoreV2", [(), (2,), (2,)], [None, None], dtypes=(DType.FLOAT, DType.FLOAT)),
    case("Save", [(), (1,), (2, 3)], [], T=(DType.FLOAT,)),
    case("SaveSlices", [(), (1,), (1,), (2, 3)], [], T=(DType.FLOAT,)),
    case("SaveV2", [(), (1,), (1,), (2, 3)], [], dtypes=(DType.FLOAT,)),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
