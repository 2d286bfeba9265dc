"""Ops that pass tensors through, or compute nothing."""

from __future__ import annotations

import pytest

from mobileprep.formats.dtypes import DType
from tests.ops.cases import OpCase, case, refused, unlike

UNCHANGED = (
    *("Copy", "CopyHost", "DebugIdentity", "DebugIdentityV2"),
    *("DebugIdentityV3", "DeepCopy", "GuaranteeConst", "Identity", "PreventGradient"),
    *("RefIdentity", "Snapshot", "StopGradient"),
)

OP_CASES = [
    *(case(op, [(2, -1)], [(2, -1)]) for op in UNCHANGED),
    case("LoopCond", [()], [()]),
    case("EnsureShape", [(2, -1)], [(2, 3)], shape=(-1, 3)),
    case("EnsureShape", [None], [(-1, 3)], shape=(-1, 3)),
    unlike(case("EnsureShape", [(2, 3)], [(2, 3)], shape=None)),
    refused("EnsureShape", [(2, 3)], shape=(2, 4)),
    case("IdentityN", [(2, 3), None], [(2, 3), None], T=(DType.FLOAT, DType.FLOAT)),
    case("NoOp", [], []),
    case("ControlTrigger", [], []),
    case("CheckNumerics", [(2, -1)], [(2, -1)], message="x"),
    case("CheckNumericsV2", [(2, -1)], [(2, -1)], message="x"),
]


@pytest.mark.parametrize("tried", OP_CASES, ids=str)
def test_shapes_and_costs(tried: OpCase) -> None:
    tried.check()
