"""Variables."""

from __future__ import annotations

from mobileprep.formats.dtypes import DType
from tests.ops.cases import case, case_tests, output_of, refused, unlike

F = DType.FLOAT
VARIABLE = output_of("VarHandleOp", shape=(7, 3), dtype=F)

OP_CASES = [
    case("VariableV2", [], [(2, 3)], shape=(2, 3)),
    case("Variable", [], [(2, 3)], shape=(2, 3)),
    unlike(case("Variable", [], [None], shape=())),
    case("VarHandleOp", [], [()], shape=(2, 3)),
    case("ReadVariableOp", [VARIABLE], [(7, 3)]),
    case("ReadVariableOp", [()], [None]),
    case("ResourceGather", [VARIABLE, (4, 5)], [(4, 5, 3)]),
    case("ResourceGather", [(), (4, 5)], [None]),
    case("ResourceGather", [VARIABLE, None], [None]),
    unlike(case("ResourceGather", [VARIABLE, (7, 5)], [None], batch_dims=1)),
    case("VariableShape", [VARIABLE], [(2,)]),
    case("VariableShape", [()], [(-1,)]),
    case("Assign", [(2, -1), (-1, 3)], [(2, 3)]),
    refused("Assign", [(2, 3), (2, 4)]),
    case("Assign", [(2, 3), (2, 4)], [(2, 4)], validate_shape=False),
    case("AssignAdd", [(2, -1), (-1, 3)], [(2, 3)]),
    case("AssignSub", [(2, -1), (-1, 3)], [(2, 3)]),
    case("CountUpTo", [()], [()], limit=3),
    case("GetSessionHandleV2", [(2, 3)], [()]),
    case("IsVariableInitialized", [(2, 3)], [()]),
    case("VarIsInitializedOp", [()], [()]),
    case("Stage", [(2, 3)], [], dtypes=(F,)),
]

test_shapes_and_costs = case_tests(OP_CASES)
