"""int8 files are as accurate and small as those of ai-edge-quantizer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.cli.main import main
from mobileprep.graph.tensor import Array

pytestmark = pytest.mark.reference

RECIPES = Path(__file__).parents[2] / "recipes"
# The method of ai-edge-quantizer, which averages ranges.
METHOD = "moving_average"
TARGETS = """
targets:
  float: {artifact: tflite}
  int8: {artifact: tflite, quantize: int8}
"""
SIGNATURE = "serving_default"
MAX_LOSS = 0.001


def interpreter(content: bytes) -> Any:
    module = pytest.importorskip(
        "ai_edge_litert.interpreter", reason="ai-edge-litert is not installed"
    )
    return module.Interpreter(model_content=content, num_threads=1)


def accuracy(content: bytes, samples: Array, labels: Array) -> float:
    """The share of correctly classified samples."""
    runner = interpreter(content)
    (source,) = runner.get_input_details()
    runner.resize_tensor_input(source["index"], samples.shape)
    runner.allocate_tensors()
    scale, zero = source["quantization"]
    if scale:
        samples = np.clip(np.rint(samples / scale) + zero, -128, 127).astype(np.int8)
    runner.set_tensor(source["index"], samples)
    runner.invoke()
    (target,) = runner.get_output_details()
    return float(np.mean(runner.get_tensor(target["index"]).argmax(-1) == labels))


def theirs(content: bytes, samples: Array, folder: Path) -> bytes:
    """Quantize a float file with ai-edge-quantizer."""
    package = pytest.importorskip(
        "ai_edge_quantizer", reason="ai-edge-quantizer is not installed", exc_type=ImportError
    )
    (name,) = interpreter(content).get_signature_list()[SIGNATURE]["inputs"]
    file = folder / "float.tflite"
    file.write_bytes(content)
    quantizing = package.quantizer.Quantizer(str(file))
    quantizing.load_quantization_recipe(package.recipe.static_wi8_ai8())
    ranges = quantizing.calibrate({SIGNATURE: [{name: sample[None]} for sample in samples]})
    return bytes(quantizing.quantize(ranges).quantized_model)


# It warns that it keeps intermediate tensors, which it needs for the ranges.
@pytest.mark.filterwarnings("ignore:.*experimental_preserve_all_tensors:UserWarning")
@pytest.mark.parametrize("name", ["mnist", "digits"])
def test_int8_accuracy_and_size(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    shutil.copytree(RECIPES / name, tmp_path / name)
    recipe = tmp_path / name / "recipe.yaml"
    text = recipe.read_text("utf-8").partition("\ncalibration:")[0].partition("\nvalidation:")[0]
    calibration = f"calibration: {{data: data/calibration.npz, method: {METHOD}}}"
    recipe.write_text(f"{text}\n{calibration}\n{TARGETS}", "utf-8")
    assert main(["build", str(recipe)]) == 0
    plain, ours = (
        (tmp_path / f"out/{name}/{target}/{name}.tflite").read_bytes()
        for target in ("float", "int8")
    )
    with np.load(tmp_path / name / "data/test.npz") as test:
        samples, labels = test["image"].astype(np.float32), test["label"]
    with np.load(tmp_path / name / "data/calibration.npz") as calibration_data:
        other = theirs(plain, calibration_data["image"].astype(np.float32), tmp_path)
    share = accuracy(ours, samples, labels)
    assert share >= accuracy(plain, samples, labels) - MAX_LOSS
    assert share >= accuracy(other, samples, labels)
    assert len(ours) <= 1.03 * len(other)
