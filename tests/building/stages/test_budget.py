"""The budget stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.budget.run import run
from mobileprep.building.stages.budget.spec import BudgetStage
from mobileprep.errors import AccuracyError, RecipeError
from mobileprep.graph import attrs as attr
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import constant
from mobileprep.graph.opdef import OpDef
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.settings import Budget, InputSpec, OpLimits
from mobileprep.targets.targets import Device
from tests.building.stages.jobs import (
    assets,
    classifier,
    interface,
    job,
    left,
    op,
    placeholder,
    slots,
)

MODEL = {"file": "m.pb", "bytes": 300, "nodes": 5, "parameters": 12, "constants": 2}
OPS = {"MatMul": 1, "BiasAdd": 1, "Const": 2, "Placeholder": 1}
KERNELS = [
    {"tensorflow": "1.15", "kernels": 7, "bytes": 900},
    {"tensorflow": "2.21", "kernels": 9, "bytes": None},
]
PACKAGE = {"model": MODEL, "ops": OPS, "warnings": [], "kernels": KERNELS}
SLOW = Device("slow", "a slow device", 1e-6, "a test", "nobody")
# 3 x 3 multiplications with as many additions, and 3 additions, of one sample.
FLOPS = 2 * 3 * 3 + 3


def limited(
    folder: Path,
    budget: Budget,
    graph: Graph | None = None,
    inputs: tuple[InputSpec, ...] = (),
    **package: Any,
) -> Job[BudgetStage]:
    given = {
        "package": {**PACKAGE, **package},
        "compressed": {"bytes": 200, "compressor": "deflate by X 1"},
        "graph": graph or classifier(),
        "interface": interface("y"),
        "assets": assets(folder),
    }
    asked = BudgetStage(budget=budget, device=SLOW, inputs=inputs, **slots(*given))
    return job(folder, asked, **given)


LIMITS: dict[str, float] = {
    "model_bytes": 300,
    "compressed_bytes": 200,
    "parameters": 12,
    "flops": FLOPS,
    # The result of MatMul and the output exist at the same time.
    "activation_bytes": 2 * 3 * 4,
    "latency_ms": FLOPS / 1e3 * 1e3,
    "kernels": 9,
    "kernel_bytes": 900,
}


@pytest.mark.parametrize("key", LIMITS)
def test_a_budget_is_met_exactly_and_missed_by_one(tmp_path: Path, key: str) -> None:
    limit = LIMITS[key]
    done = limited(tmp_path, Budget(**{key: limit}))  # type: ignore[arg-type]
    run(done)
    (line,) = left(done, "budget.json")["lines"]
    assert (line["name"], line["found"], line["limit"]) == (key, limit, limit)
    with pytest.raises(AccuracyError, match=f"1 over the budget of {limit - 1:g}") as caught:
        run(limited(tmp_path, Budget(**{key: limit - 1})))  # type: ignore[arg-type]
    assert caught.value.where == "recipe.yaml:9:1"
    assert caught.value.hint.endswith(", or raise the budget")
    told = "the model compressed by deflate by X 1 is" in caught.value.message
    assert told == (key == "compressed_bytes")


def test_the_mend_names_what_weighs_most(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError) as caught:
        run(limited(tmp_path, Budget(parameters=1, flops=1, kernels=1)))
    hint = caught.value.hint
    assert "most are in 'w' (9), 'b' (3)" in hint
    assert "MatMul 86 %, BiasAdd 14 %, most of it in 'product' (18), 'y' (3)" in hint
    assert "of one node each are BiasAdd, MatMul" in hint


def test_the_mend_names_constants_of_functions(tmp_path: Path) -> None:
    signature = OpDef("turn")
    body = Function(signature, (constant("weights", Tensor.of(np.zeros(90, np.float32))),))
    graph = Graph(classifier().nodes, Library({"turn": body}))
    with pytest.raises(AccuracyError) as caught:
        run(limited(tmp_path, Budget(parameters=1), graph))
    assert "most are in 'turn/weights' (90), 'w' (9), 'b' (3)" in caught.value.hint


def test_ops_that_are_not_counted_are_named(tmp_path: Path) -> None:
    graph = Graph([placeholder((4, 3)), op("y", "BesselI0e", "x")])
    done = limited(tmp_path, Budget(flops=10), graph)
    run(done)
    assert left(done, "budget.json")["lines"][0]["basis"] == "counts without BesselI0e"


def test_all_limits_that_are_missed_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError) as caught:
        run(limited(tmp_path, Budget(0, 0)))
    assert caught.value.message.count("over the budget of 0") == 2
    assert caught.value.hint == ("quantize the weights, cut the graph further, or raise the budget")


@pytest.mark.parametrize(
    ("ops", "told"),
    [
        (OpLimits(forbid=("MatMul", "Conv2D")), ["MatMul"]),
        (OpLimits(allow=("Const", "Placeholder", "MatMul")), ["BiasAdd"]),
        (OpLimits(allow=tuple(OPS)), []),
    ],
)
def test_ops_are_allowed_or_forbidden(tmp_path: Path, ops: OpLimits, told: list[str]) -> None:
    done = limited(tmp_path, Budget(ops=ops))
    if not told:
        run(done)
        assert left(done, "budget.json")["lines"] == []
        return
    with pytest.raises(AccuracyError) as caught:
        run(done)
    first = {"MatMul": "product", "BiasAdd": "y"}[told[0]]
    assert caught.value.message == (f"the op {told[0]} is not allowed (1 node, such as '{first}')")
    assert "cut the graph before" in caught.value.hint


def test_a_size_that_nobody_declares_is_asked_for(tmp_path: Path) -> None:
    graph = Graph([placeholder((-1, -1)), op("y", "Softmax", "x")])
    with pytest.raises(RecipeError, match="all sizes of") as caught:
        run(limited(tmp_path, Budget(flops=1000), graph))
    assert "inputs: {x: {shape:" in caught.value.hint
    assert caught.value.where == "recipe.yaml:4:1"
    done = limited(tmp_path, Budget(flops=1000), graph, (InputSpec("x", shape=(-1, 8)),))
    run(done)
    assert left(done, "budget.json")["lines"][0]["found"] == 5 * 8


def test_a_shape_that_a_run_alone_shows_is_taken_from_one(tmp_path: Path) -> None:
    graph = Graph(
        [
            placeholder((4, 3)),
            op("mask", "GreaterEqual", "x", "x"),
            op("where", "Where", "mask", T=attr.dtype(attr.DType.BOOL)),
            op("y", "Abs", "where", T=attr.dtype(attr.DType.INT64)),
        ]
    )
    done = limited(tmp_path, Budget(activation_bytes=10_000), graph)
    run(done)
    # All twelve elements are found, each at two indices of eight bytes, twice.
    assert left(done, "budget.json")["lines"][0]["found"] == 2 * 12 * 2 * 8


def test_kernels_without_an_estimate_are_told(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"only known for TensorFlow 1\.15"):
        run(limited(tmp_path, Budget(kernel_bytes=5), kernels=KERNELS[1:]))


def test_ops_that_neither_the_model_nor_tensorflow_has_are_told(tmp_path: Path) -> None:
    said: list[str] = []
    ops = OpLimits(forbid=("Cosnt", "Custom", "LRN"))
    asked = limited(tmp_path, Budget(ops=ops), ops={**OPS, "Other": 1})
    run(replace(asked, warn=said.append))
    assert len(said) == 2
    assert "no TensorFlow has an op 'Cosnt'" in said[0]
    assert "'Custom'" in said[1]


def test_a_device_without_limits_gives_the_cost(tmp_path: Path) -> None:
    done = limited(tmp_path, Budget())
    run(done)
    found = left(done, "budget.json")
    assert found["lines"] == []
    assert found["cost"] == {
        "device": "a slow device",
        "flops": FLOPS,
        "latency_ms": FLOPS,
        "basis": "1e-06 GFLOP/s, nobody",
    }


def test_without_limits_an_unknown_size_is_a_warning(tmp_path: Path) -> None:
    said: list[str] = []
    graph = Graph([placeholder((-1, -1)), op("y", "Softmax", "x")])
    done = limited(tmp_path, Budget(), graph)
    run(replace(done, warn=said.append))
    assert left(done, "budget.json")["cost"] is None
    assert len(said) == 1
    assert "recipe.yaml:4:1: no cost on a slow device is reported" in said[0]
