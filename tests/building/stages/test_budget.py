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
from mobileprep.core.files import sha256_bytes
from mobileprep.errors import AccuracyError, RecipeError
from mobileprep.graph import attrs as attr
from mobileprep.graph.attrs import OpDef
from mobileprep.graph.graph import Function, Graph, Library
from mobileprep.graph.node import constant
from mobileprep.graph.serde import serialized_size
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.settings import Budget, InputSpec, OpLimits
from mobileprep.targets.measurements import MeasuredOp, Measurement
from mobileprep.targets.op_classes import ClassCost
from mobileprep.targets.targets import Device
from tests.building.stages.jobs import (
    assets,
    classifier,
    interface,
    job,
    json_output,
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
STORED = {
    "package": PACKAGE,
    "compressed": {"bytes": 200, "compressor": "deflate by X 1"},
    "graph": classifier(),
    "interface": interface("y"),
}
SLOW = Device("slow", "a slow device", 1e-6, "a test", "no source")
# 3 x 3 multiplications and additions, and 3 additions for the bias, for one sample.
FLOPS = 2 * 3 * 3 + 3


def budget_job(
    folder: Path,
    budget: Budget,
    graph: Graph | None = None,
    inputs: tuple[InputSpec, ...] = (),
    **package: Any,
) -> Job[BudgetStage]:
    stored = {
        **STORED,
        "package": {**PACKAGE, **package},
        "graph": graph or classifier(),
        "assets": assets(folder),
    }
    stage = BudgetStage(budget=budget, device=SLOW, inputs=inputs, **slots(*stored))
    return job(folder, stage, **stored)


def budget_record(*arguments: Any) -> dict[str, Any]:
    """Run the stage and return its record."""
    done = budget_job(*arguments)
    run(done)
    return json_output(done, "budget.json")


LIMITS: dict[str, float] = {
    "model_bytes": 300,
    "compressed_bytes": 200,
    "parameters": 12,
    "flops": FLOPS,
    # The result of MatMul and the output are alive at the same time.
    "activation_bytes": 2 * 3 * 4,
    "latency_ms": FLOPS / 1e3 * 1e3,
    "kernels": 9,
    "kernel_bytes": 900,
}


@pytest.mark.parametrize("key", LIMITS)
def test_limit_may_be_reached_but_not_exceeded(tmp_path: Path, key: str) -> None:
    limit = LIMITS[key]
    (line,) = budget_record(tmp_path, Budget(**{key: limit}))["lines"]  # type: ignore[arg-type]
    assert (line["name"], line["found"], line["limit"]) == (key, limit, limit)
    with pytest.raises(AccuracyError, match=f"1 over the budget of {limit - 1:g}") as caught:
        run(budget_job(tmp_path, Budget(**{key: limit - 1})))  # type: ignore[arg-type]
    assert caught.value.where == "recipe.yaml:9:1"
    assert caught.value.hint.endswith(", or raise the budget")
    names_compressor = "the model compressed by deflate by X 1 is" in caught.value.message
    assert names_compressor == (key == "compressed_bytes")


def test_hint_names_the_largest_contributors(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError) as caught:
        run(budget_job(tmp_path, Budget(parameters=1, flops=1, kernels=1)))
    hint = caught.value.hint
    assert "most are in 'w' (9), 'b' (3)" in hint
    assert "MatMul 86 %, BiasAdd 14 %, most of it in 'product' (18), 'y' (3)" in hint
    assert "of one node each are BiasAdd, MatMul" in hint


def test_hint_names_constants_of_functions(tmp_path: Path) -> None:
    signature = OpDef("turn")
    body = Function(signature, (constant("weights", Tensor.of(np.zeros(90, np.float32))),))
    graph = Graph(classifier().nodes, Library({"turn": body}))
    with pytest.raises(AccuracyError) as caught:
        run(budget_job(tmp_path, Budget(parameters=1), graph))
    assert "most are in 'turn/weights' (90), 'w' (9), 'b' (3)" in caught.value.hint


def test_ops_without_a_count_are_named(tmp_path: Path) -> None:
    graph = Graph([placeholder((4, 3)), op("y", "BesselI0e", "x")])
    record = budget_record(tmp_path, Budget(flops=10), graph)
    assert record["lines"][0]["basis"] == "counts without BesselI0e"


def test_all_exceeded_limits_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError) as caught:
        run(budget_job(tmp_path, Budget(0, 0)))
    assert caught.value.message.count("over the budget of 0") == 2
    assert caught.value.hint == ("quantize the weights, cut the graph further, or raise the budget")


@pytest.mark.parametrize(
    ("ops", "op", "node"),
    [
        (OpLimits(forbid=("MatMul", "Conv2D")), "MatMul", "product"),
        (OpLimits(allow=("Const", "Placeholder", "MatMul")), "BiasAdd", "y"),
    ],
)
def test_ops_that_are_not_allowed(tmp_path: Path, ops: OpLimits, op: str, node: str) -> None:
    with pytest.raises(AccuracyError) as caught:
        run(budget_job(tmp_path, Budget(ops=ops)))
    assert caught.value.message == f"the op {op} is not allowed (1 node, such as '{node}')"
    assert "cut the graph before" in caught.value.hint


def test_all_ops_may_be_allowed(tmp_path: Path) -> None:
    record = budget_record(tmp_path, Budget(ops=OpLimits(allow=tuple(OPS))))
    assert record["lines"] == []


def test_unknown_size_of_an_input_must_be_declared(tmp_path: Path) -> None:
    graph = Graph([placeholder((-1, -1)), op("y", "Softmax", "x")])
    with pytest.raises(RecipeError, match="all sizes of") as caught:
        run(budget_job(tmp_path, Budget(flops=1000), graph))
    assert "inputs: {x: {shape:" in caught.value.hint
    assert caught.value.where == "recipe.yaml:4:1"
    declared = (InputSpec("x", shape=(-1, 8)),)
    record = budget_record(tmp_path, Budget(flops=1000), graph, declared)
    assert record["lines"][0]["found"] == 5 * 8


def test_dynamic_shapes_come_from_a_run(tmp_path: Path) -> None:
    graph = Graph(
        [
            placeholder((4, 3)),
            op("mask", "GreaterEqual", "x", "x"),
            op("where", "Where", "mask", T=attr.dtype(attr.DType.BOOL)),
            op("y", "Abs", "where", T=attr.dtype(attr.DType.INT64)),
        ]
    )
    record = budget_record(tmp_path, Budget(activation_bytes=10_000), graph)
    # Two tensors have two 8-byte indices for each of the twelve elements.
    assert record["lines"][0]["found"] == 2 * 12 * 2 * 8


def test_kernels_without_an_estimate_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"only known for TensorFlow 1\.15"):
        run(budget_job(tmp_path, Budget(kernel_bytes=5), kernels=KERNELS[1:]))


def test_unknown_ops_in_limits_are_warned_about(tmp_path: Path) -> None:
    warnings: list[str] = []
    ops = OpLimits(forbid=("Cosnt", "Custom", "LRN"))
    done = budget_job(tmp_path, Budget(ops=ops), ops={**OPS, "Other": 1})
    run(replace(done, warn=warnings.append))
    misspelled, custom = warnings
    assert "no TensorFlow has an op 'Cosnt'" in misspelled
    assert "'Custom'" in custom


def test_device_without_limits_reports_the_cost(tmp_path: Path) -> None:
    record = budget_record(tmp_path, Budget())
    assert record["lines"] == []
    assert record["cost"] == {
        "device": "a slow device",
        "flops": FLOPS,
        "latency_ms": FLOPS,
        "basis": "1e-06 GFLOP/s, no source",
    }


def test_unknown_size_without_limits_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    graph = Graph([placeholder((-1, -1)), op("y", "Softmax", "x")])
    done = budget_job(tmp_path, Budget(), graph)
    run(replace(done, warn=warnings.append))
    assert json_output(done, "budget.json")["cost"] is None
    (warning,) = warnings
    assert "recipe.yaml:4:1: no cost on a slow device is reported" in warning


def measured_job(folder: Path, content: bytes, **limits: float) -> Job[BudgetStage]:
    """A job with a measurement of 4.5 ms of the model `content`, and the published model `m`."""
    (folder / "m.pb").write_bytes(b"m")
    cost = ClassCost("product", 1, 18, 0)
    measurement = Measurement(
        *("phone", "Pixel 3", "google/blueline:12", "performance", "2026-05-04", "benchmark_model"),
        *(sha256_bytes(content), 4.5, 4, 0.25),
        runs=50,
        ops=(MeasuredOp("MatMul", "y/MatMul", 4.0, cost), MeasuredOp("Copy", "", 0.5)),
    )
    stage = BudgetStage(
        budget=Budget(**limits),
        device=SLOW,
        measurement=measurement,
        **slots(*STORED, "assets", "model"),
    )
    model = {"model": folder / "m.pb", "assets": assets(folder)}
    done = job(folder, stage, **STORED, **model)
    return replace(done, places={"measurement": "r.yaml:3:1"})


def test_measurement_of_the_model_is_the_latency(tmp_path: Path) -> None:
    done = measured_job(tmp_path, b"m", latency_ms=5)
    run(done)
    record = json_output(done, "budget.json")
    circumstances = (
        "4 threads, governor performance, google/blueline:12, benchmark_model, 2026-05-04"
    )
    (line,) = record["lines"]
    assert line == {
        "name": "latency_ms",
        "found": 4.5,
        "limit": 5,
        "basis": f"measured, {circumstances}",
    }
    assert record["measured"] == {
        "device": "Pixel 3",
        "basis": circumstances,
        "is_stale": False,
        "latency_ms": 4.5,
        "std_ms": 0.25,
        "runs": 50,
        "estimated_ms": FLOPS,
        "ops": [
            {"op": "MatMul", "name": "y/MatMul", "measured_ms": 4.0, "estimated_ms": 18.0},
            {"op": "Copy", "name": "", "measured_ms": 0.5, "estimated_ms": None},
        ],
    }
    with pytest.raises(AccuracyError, match=r"one sample takes 4\.5 ms on Pixel 3, 0\.5 over"):
        run(measured_job(tmp_path, b"m", latency_ms=4))


def test_stale_measurement_is_replaced_by_the_estimate(tmp_path: Path) -> None:
    warnings: list[str] = []
    done = measured_job(tmp_path, b"another", latency_ms=100)
    run(replace(done, warn=warnings.append))
    record = json_output(done, "budget.json")
    assert record["lines"][0]["found"] == FLOPS
    assert record["measured"]["is_stale"] is True
    (warning,) = warnings
    assert warning.startswith("r.yaml:3:1: the measurement is of another model")
    without = replace(done, asked=replace(done.asked, device=None), warn=warnings.append)
    with pytest.raises(RecipeError, match="an estimate needs a device"):
        run(without)


# The graph has 3 x 3 weights and a bias of 3 for float32 inputs of 3 values.
WEIGHTS = 4 * (3 * 3 + 3)


def test_ram_is_the_larger_peak_and_the_record_has_the_timeline(tmp_path: Path) -> None:
    record = budget_record(tmp_path, Budget(ram=10_000))
    (line,) = record["lines"]
    size = serialized_size(classifier())
    # The input and the product, over which BiasAdd writes, take 64 bytes each.
    assert (line["name"], line["found"]) == ("ram", size + WEIGHTS + 2 * 64)
    parse, prepare, run_phase = record["memory"]["phases"]
    assert (parse["name"], parse["constants"], parse["weights"]) == ("parse", size, 0)
    assert (prepare["name"], prepare["weights"]) == ("prepare", WEIGHTS)
    assert (run_phase["name"], run_phase["activations"]) == ("run", 2 * 64)
    assert line["basis"].startswith(f"parse: {size:,} constants; prepare: ")


def test_exceeded_ram_names_the_phases_and_other_artifacts(tmp_path: Path) -> None:
    size = serialized_size(classifier())
    with pytest.raises(AccuracyError) as caught:
        run(budget_job(tmp_path, Budget(ram=size)))
    assert f"running one sample takes {size + WEIGHTS + 2 * 64:,} bytes" in caught.value.message
    assert f"run: {size:,} constants, {WEIGHTS} weights, 128 activations" in caught.value.message
    assert caught.value.hint.startswith("no other artifact would meet it; ")


def test_exceeded_ram_suggests_an_artifact_that_meets_it(tmp_path: Path) -> None:
    large = Tensor.of(np.ones((3, 2000), np.float32))
    graph = Graph([placeholder((1, 3)), constant("w", large), op("y", "MatMul", "x", "w")])
    with pytest.raises(AccuracyError) as caught:
        run(budget_job(tmp_path, Budget(ram=45_000), graph))
    first, _, _ = caught.value.hint.partition(" would meet it; ")
    assert "'artifact: memmapped' (" in first
    assert "'artifact: tflite' (" in first


def test_memory_is_recorded_only_with_its_limit(tmp_path: Path) -> None:
    assert budget_record(tmp_path, Budget(parameters=100))["memory"] is None
