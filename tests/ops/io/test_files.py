"""File and checkpoint ops."""

from __future__ import annotations

from mobileprep.formats.dtypes import DType
from tests.ops.cases import case, case_tests

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

test_shapes_and_costs = case_tests(OP_CASES)
