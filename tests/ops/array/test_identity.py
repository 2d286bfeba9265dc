"""Ops that pass tensors through or compute nothing."""

from __future__ import annotations

import numpy as np
import pytest

from mobileprep.errors import InvalidGraphError
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Graph
from mobileprep.runtime.interpreter import Interpreter
from tests.ops.cases import case, case_tests, refused, unlike
from tests.ops.graphs import c, f32, i32, n, run, run_all

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

test_shapes_and_costs = case_tests(OP_CASES)


def test_identity_ops() -> None:
    for op in ("Identity", "Snapshot", "StopGradient", "PreventGradient"):
        assert run(op, i32(1, 2)).tolist() == [1, 2]
    first, second = run_all("IdentityN", i32(1, 2), f32(0.5), T=[DType.INT32, DType.FLOAT])
    assert (first.tolist(), second.tolist()) == ([1, 2], 0.5)
    assert run("LoopCond", np.array(True)).tolist() is True


@pytest.mark.parametrize("shape", [(2, 3), (-1, 3), (-1, -1), None])
def test_ensure_shape_accepts_matching_shape(shape: tuple[int, ...] | None) -> None:
    x = np.ones((2, 3), np.float32)
    assert run("EnsureShape", x, shape=attr.shape(shape)).shape == (2, 3)


@pytest.mark.parametrize("shape", [(2, 4), (3, -1), (2,), (2, 3, 1), ()])
def test_ensure_shape_refuses_other_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidGraphError, match=r"the shape \[2, 3\] does not fit"):
        run("EnsureShape", np.ones((2, 3), np.float32), shape=attr.shape(shape))


@pytest.mark.parametrize("op", ["CheckNumerics", "CheckNumericsV2"])
def test_check_numerics(op: str) -> None:
    assert run(op, f32(1, -2), message="logits").tolist() == [1, -2]
    for bad, kind in ((np.inf, "Inf"), (-np.inf, "Inf"), (np.nan, "NaN")):
        with pytest.raises(InvalidGraphError, match=f"found {kind}: logits"):
            run(op, f32(1, bad), message="logits")
    with pytest.raises(InvalidGraphError, match="found NaN"):
        run(op, f32(np.inf, np.nan), message="logits")


@pytest.mark.parametrize("op", ["NoOp", "ControlTrigger"])
def test_no_op_as_control_input(op: str) -> None:
    graph = Graph([c("a", 1.0), n("wait", op, "^a"), n("y", "Identity", "a", "^wait")])
    assert Interpreter(graph).run(["y"], {})[0].tolist() == 1
