"""Builds that measure the layers of LiteRT files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep import build
from mobileprep.building.quantization_debugging import debug_tflite
from mobileprep.errors import AccuracyError, UsageError
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.load import load_recipe
from tests.building.stages.jobs import op, placeholder

RECIPE = """\
version: 1
name: net
source: {frozen: model.pb}
inputs: {x: {dtype: float32, shape: [-1, 8]}}
outputs: [y]
transforms: [strip_unused_nodes]
calibration: {data: data.npz, method: min_max}
targets:
  phone: {artifact: tflite, quantize: QUANTIZE, quantization_report: true, check: false}
"""
REPAIR = "{mode: int8, repair: [{equalize_ranges: {samples: 1100}}, reconstruct_weights]}"


def network() -> Graph:
    """Two dense layers; half of the channels between them are a thousand times smaller."""
    rng = np.random.default_rng(0)
    small = np.where(np.arange(16) % 2, 1e-3, 1.0)
    first = rng.normal(size=(8, 16)) * small
    second = rng.normal(size=(16, 4)) / small[:, np.newaxis]
    return Graph(
        [
            placeholder((-1, 8)),
            constant("first/weights", Tensor.of(first.astype(np.float32))),
            op("first", "MatMul", "x", "first/weights"),
            op("relu", "Relu", "first"),
            constant("second/weights", Tensor.of(second.astype(np.float32))),
            op("y", "MatMul", "relu", "second/weights"),
        ]
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "cache"))
    write_graph(tmp_path / "model.pb", network())
    # Enough values of each channel to know its range.
    x = np.random.default_rng(1).uniform(-1, 1, (1100, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    return tmp_path


def built(folder: Path, quantize: str) -> dict[str, Any]:
    """Build the recipe, and return the layers of its report."""
    (folder / "recipe.yaml").write_text(RECIPE.replace("QUANTIZE", quantize))
    (target,) = build(folder / "recipe.yaml", folder / "out", warn=lambda _: None).targets
    layers: dict[str, Any] = json.loads((target.folder / "report.json").read_text())["layers"]
    return layers


def test_equalized_layers_have_smaller_errors(folder: Path) -> None:
    layers = built(folder, REPAIR)
    assert (layers["data"], layers["samples"], layers["unmeasured"]) == ("data.npz", 4, "")
    assert layers["repairs"] == ["equalize_ranges", "reconstruct_weights"]
    first, second = layers["layers"]
    assert (first["layer"], first["op"]) == ("first/layer", "FULLY_CONNECTED")
    (output,) = layers["outputs"]
    assert (output["output"], len(output["errors"])) == ("y", 3)
    before, equalized, reconstructed = (error["sqnr"] for error in output["errors"])
    # Rounding loses the small channels, which the second layer makes as large as the others.
    assert before < 1
    assert second["errors"][0]["alone"] < 10
    shares = second["errors"][0]["shares"]
    assert shares["weights"] + shares["rounding"] > 0.9
    assert min(shares["weights"], shares["rounding"]) > 0.3
    # Scales go half way to the least expected error: a thousandth becomes about a thirtieth.
    assert equalized > 18
    assert reconstructed > 18
    for layer in (first, second):
        for error in layer["errors"]:
            assert sum(error["shares"].values()) == pytest.approx(1)


@pytest.mark.parametrize("mode", ["weights", "int4"])
def test_weights_are_measured(folder: Path, mode: str) -> None:
    rng = np.random.default_rng(0)
    wide = constant("first/weights", Tensor.of(rng.normal(size=(8, 512)).astype(np.float32)))
    out = constant("second/weights", Tensor.of(rng.normal(size=(512, 4)).astype(np.float32)))
    nodes = {node.name: node for node in network()} | {wide.name: wide, out.name: out}
    write_graph(folder / "model.pb", Graph(nodes.values()))
    first, second = built(folder, mode)["layers"]
    ratios = [layer["errors"][0]["alone"] for layer in (first, second)]
    # 127 steps leave about 40 dB, and 7 steps about 16 dB.
    low, high = (35, 50) if mode == "weights" else (10, 25)
    assert all(low < ratio < high for ratio in ratios)


def test_unusable_samples_are_an_error(folder: Path) -> None:
    (folder / "recipe.yaml").write_text(
        RECIPE.replace("QUANTIZE", "int8") + "validation: {data: other.npz}\n"
    )
    np.savez(folder / "other.npz", x=np.ones((2, 8), np.float32))
    with pytest.raises(AccuracyError, match="all samples hold one value"):
        debug_tflite(load_recipe(folder / "recipe.yaml", environ={}))


def test_target_without_samples_is_refused(folder: Path) -> None:
    calibration = "calibration: {data: data.npz, method: min_max}\n"
    text = RECIPE.replace("QUANTIZE", "weights").replace(calibration, "")
    (folder / "recipe.yaml").write_text(text)
    with pytest.raises(UsageError, match="no data to run the model on"):
        debug_tflite(load_recipe(folder / "recipe.yaml", environ={}))


def test_debugging_prints_the_numbers_of_the_report(folder: Path) -> None:
    reported = built(folder, REPAIR)
    damage = debug_tflite(load_recipe(folder / "recipe.yaml", environ={}), seed=0)
    assert (damage.recipe, damage.target, damage.errors.samples) == ("net", "phone", 4)
    assert [layer.layer for layer in damage.errors.layers] == ["first/layer", "y/layer"]
    assert damage.rule == "{mode: float, nodes: '^(y/layer|first/layer)$'}"
    assert [output["output"] for output in reported["outputs"]] == [
        output.output for output in damage.errors.outputs
    ]
    for layer, other in zip(reported["layers"], damage.errors.layers, strict=True):
        assert [error["sqnr"] for error in layer["errors"]] == [
            None if error is None else error.sqnr for error in other.errors
        ]
