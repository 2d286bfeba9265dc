"""The damage stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.damage.run import run
from mobileprep.building.stages.damage.spec import DamageStage
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.transforms.base import Context, make_transform
from tests.building.stages.jobs import files, job, json_output, op, placeholder, slots

WEIGHTS = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
DATA = np.random.default_rng(1).uniform(-1, 1, (24, 8)).astype(np.float32)


def network() -> Graph:
    return Graph(
        [
            placeholder((-1, 8)),
            constant("w", Tensor.of(WEIGHTS)),
            op("product", "MatMul", "x", "w"),
            op("y", "Relu", "product"),
        ]
    )


def damage_record(folder: Path, data: Any, count: int = 16) -> dict[str, Any]:
    """Run the stage and return its record."""
    np.savez(folder / "data.npz", x=data, label=np.zeros(len(data), np.int64))
    graph = network()
    step = make_transform("quantize_nodes", {"ranges": "dynamic"})
    inputs = {
        "graph": graph,
        "quantized": step.apply(graph, Context(("x",), ("y",))).graph,
        "interface": {"inputs": ["x"], "outputs": ["y"], "init_ops": []},
        "assets": folder / "assets.npz",
    }
    np.savez(folder / "assets.npz")
    stage = DamageStage(data=files(folder / "data.npz"), count=count, **slots(*inputs))
    done: Job[DamageStage] = job(folder, stage, **inputs)
    run(done)
    return json_output(done, "damage.json")


def test_tensors_are_sorted_by_damage(tmp_path: Path) -> None:
    record = damage_record(tmp_path, DATA)
    assert (record["samples"], record["unmeasured"]) == (16, "")
    tensors = {tensor["tensor"]: tensor for tensor in record["tensors"]}
    assert set(tensors) == {"x", "w", "product", "y"}
    decibels = [tensor["sqnr"] for tensor in record["tensors"]]
    assert decibels == sorted(decibels)
    assert tensors["w"]["is_weights"]
    assert 30 < tensors["y"]["sqnr"] < 60
    # Rounding alone has an RMSE of 0.289 of the scale.
    assert tensors["x"]["rmse_over_scale"] == pytest.approx(0.289, abs=0.05)
    assert tensors["y"]["rmse_over_scale"] is None


def test_all_of_fewer_samples_are_run(tmp_path: Path) -> None:
    assert damage_record(tmp_path, DATA[:5])["samples"] == 5


def test_failed_measurement_is_recorded(tmp_path: Path) -> None:
    record = damage_record(tmp_path, DATA[:, :7])
    assert (record["samples"], record["tensors"]) == (0, [])
    assert "shape" in record["unmeasured"]
