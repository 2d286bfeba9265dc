"""The layers stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mobileprep.building.plan.spec import Upstream
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.layers.run import run
from mobileprep.building.stages.layers.spec import LayersStage
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.validation_settings import Quantize
from tests.building.stages.jobs import files, job, json_output, op, placeholder, slots

WEIGHTS = np.random.default_rng(0).normal(size=(8, 200)).astype(np.float32)
DATA = np.random.default_rng(1).uniform(-1, 1, (6, 8)).astype(np.float32)


def record_of(folder: Path, kind: str, data: Any = DATA) -> dict[str, Any]:
    """Run the stage on a layer and an op, and return its record."""
    np.savez(folder / "data.npz", x=data)
    np.savez(folder / "assets.npz")
    nodes = [
        placeholder((-1, 8)),
        constant("w", Tensor.of(WEIGHTS)),
        op("product", "MatMul", "x", "w"),
        op("y", kind, "product"),
    ]
    stage = LayersStage(
        data=files(folder / "data.npz"),
        count=4,
        graphs=(Upstream("r/earlier", "graph"),),
        quantize=Quantize("weights"),
        **slots("interface", "assets"),
    )
    inputs = {
        "graphs 1": Graph(nodes),
        "interface": {"inputs": ["x"], "outputs": ["y"], "init_ops": []},
        "assets": folder / "assets.npz",
    }
    done: Job[LayersStage] = job(folder, stage, **inputs)
    run(done)
    return json_output(done, "layers.json")


def test_layers_and_outputs_are_recorded(tmp_path: Path) -> None:
    record = record_of(tmp_path, "Relu")
    assert (record["samples"], record["unmeasured"], record["repairs"]) == (4, "", [])
    (layer,) = record["layers"]
    assert (layer["layer"], layer["op"]) == ("product", "FULLY_CONNECTED")
    (error,) = layer["errors"]
    assert 30 < error["alone"] == error["sqnr"] < 50
    assert record["outputs"] == [
        {"output": "y", "errors": [{"sqnr": error["sqnr"], "shares": error["shares"]}]}
    ]


def test_unsupported_op_is_recorded(tmp_path: Path) -> None:
    record = record_of(tmp_path, "Foo")
    assert (record["samples"], record["layers"]) == (0, [])
    assert "Foo" in record["unmeasured"]


def test_unusable_samples_are_recorded(tmp_path: Path) -> None:
    record = record_of(tmp_path, "Relu", DATA[:, :7])
    assert "shape" in record["unmeasured"]
