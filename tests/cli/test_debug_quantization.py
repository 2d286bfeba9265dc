"""The verb ``debug-quantization`` ranks layers and tensors by quantization error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from mobileprep import build
from mobileprep.ops.numerics.differences import HEALTHY_RMSE

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture
def recipe(workdir: Path) -> Path:
    """A copy of the quantized digits recipe."""
    for name in ("digits", "digits-eight-bits"):
        shutil.copytree(RECIPES / name, workdir / name)
    return workdir / "digits-eight-bits" / "recipe.yaml"


@pytest.mark.parametrize("target", ["dynamic", "observed"])
def test_layers_and_tensors_are_ranked(recipe, run, target: str) -> None:
    result = run("debug-quantization", recipe, "--target", target, "--json", "--samples", 40)
    assert result.code == 0
    data = json.loads(result.out)
    assert (data["recipe"], data["target"]) == ("digits-eight-bits", target)
    assert (data["data"], data["samples"]) == ("data/test.npz", 40)
    layers = data["layers"]
    assert {layer["layer"] for layer in layers} == {
        "Conv/Conv2D",
        "Pointwise/Conv2D",
        "Dense/BatchNorm/batchnorm/mul_1",  # the product into which its batch norm was folded
        "Logits/MatMul",
    }
    alone = [layer["alone"]["sqnr"] for layer in layers]
    assert alone == sorted(alone)
    # A single layer has a smaller error than all layers together.
    assert alone[-1] > data["whole"]["sqnr"]
    tensors = data["tensors"]
    assert [t["damage"]["sqnr"] for t in tensors] == sorted(t["damage"]["sqnr"] for t in tensors)
    weights = [t["damage"] for t in tensors if t["is_weights"] and t["damage"]["elements"] > 1000]
    assert weights
    for damage in weights:
        # Rounding preserves sums of weights, and does not round to the nearest step.
        assert damage["rmse_over_scale"] == pytest.approx(HEALTHY_RMSE, rel=0.15)
        assert damage["clipped"] == 0


def test_small_data_set_is_used_completely(recipe, run) -> None:
    labeled = np.load(recipe.parents[1] / "digits" / "data" / "test.npz")
    np.savez(
        recipe.parents[1] / "digits" / "data" / "test.npz",
        **{n: a[:3] for n, a in labeled.items()},
    )
    result = run("debug-quantization", recipe, "--target", "observed", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["samples"] == 3


def test_printed_rule_keeps_the_worst_layers_in_float(recipe, run) -> None:
    result = run("debug-quantization", recipe, "--target", "observed", "--tensors", 2)
    assert result.code == 0
    assert "digits-eight-bits/observed: 16 samples of data/test.npz" in result.out
    assert "2 of " in result.out
    rules = next(line for line in result.out.splitlines() if "rules: [" in line).strip()
    plain = "quantize: {mode: nodes, ranges: observed}"
    ruled = f"quantize: {{mode: nodes, ranges: observed, {rules}}}"
    text = recipe.read_text(encoding="utf-8")
    assert plain in text
    recipe.write_text(text.replace(plain, ruled), encoding="utf-8")
    (target,) = build(recipe, "out", targets=["observed"]).targets
    ops = target.report.ops
    assert ops.get("QuantizedConv2D", 0) + ops.get("QuantizedMatMul", 0) == 1
    result = run("debug-quantization", recipe, "--target", "observed", "--json")
    assert len(json.loads(result.out)["layers"]) == 1


LITERT = """\
version: 1
extends: digits/recipe.yaml
name: file
calibration: {data: digits/data/calibration.npz}
targets:
  phone: null
  download: null
  eight: {artifact: tflite, quantize: {mode: int8, repair: [equalize_ranges]}}
"""


def test_layers_of_a_litert_file_are_ranked(workdir: Path, run) -> None:
    shutil.copytree(RECIPES / "digits", workdir / "digits")
    (workdir / "file.yaml").write_text(LITERT, encoding="utf-8")
    result = run("debug-quantization", "file.yaml", "--samples", 3, "--json")
    assert result.code == 0, result.err
    data = json.loads(result.out)
    assert (data["recipe"], data["target"]) == ("file", "eight")
    errors = data["errors"]
    assert (errors["samples"], errors["repairs"]) == (3, ["equalize_ranges"])
    layers = {layer["layer"]: layer["errors"][-1]["alone"] for layer in errors["layers"]}
    assert {"Conv/Conv2D", "Pointwise/Conv2D", "Logits/MatMul"} <= layers.keys()
    result = run("debug-quantization", "file.yaml")
    lines = result.out.splitlines()
    assert lines[0] == "file/eight: 4 samples of data/test.npz, against float"
    assert lines[1].startswith("output probabilities: ")
    assert lines[3].split()[:4] == ["layer", "op", "dB", "dB"]
    alone = [float(line.split()[3]) for line in lines[4 : 4 + len(layers)]]
    assert alone == sorted(alone)
    rule = lines[-1].strip()
    assert rule.startswith("rules: [{mode: float, nodes: '^(")
    text = LITERT.replace("mode: int8,", f"mode: int8, {rule},")
    (workdir / "file.yaml").write_text(text, encoding="utf-8")
    result = run("debug-quantization", "file.yaml", "--json")
    assert result.code == 0, result.err
    ruled = json.loads(result.out)["errors"]["layers"]
    assert len(ruled) == len(layers) - 3


def test_output_is_deterministic(recipe, run) -> None:
    once, again = (run("debug-quantization", recipe, "--target", "dynamic") for _ in range(2))
    assert once.out == again.out


@pytest.mark.parametrize(
    ("flags", "message", "hint"),
    [
        ((), "2 targets of 'digits-eight-bits' are quantized", "--target: dynamic, observed"),
        (("--target", "weights"), "has no target 'weights'", "dynamic, observed"),
        (("--target", "observed", "--samples", 0), "--samples is at least 1", "defaults"),
        (("--target", "observed", "--tensors", -1), "--tensors at least 0", "defaults"),
    ],
)
def test_invalid_options_are_refused(recipe, run, flags, message: str, hint: str) -> None:
    result = run("debug-quantization", recipe, *flags)
    assert result.code == 2
    assert message in result.err
    assert hint in result.err


def test_recipe_without_quantization_or_data_is_refused(recipe, run) -> None:
    result = run("debug-quantization", recipe.parents[1] / "digits" / "recipe.yaml")
    assert result.code == 2
    assert "no target of 'digits' has quantize_nodes" in result.err
    text = recipe.read_text(encoding="utf-8")
    for old, new in (
        ("validation: {max_drop: 0.005}", "validation: null"),
        ("calibration: {data: ../digits/data/calibration.npz}\n", ""),
        ("ranges: observed", "ranges: dynamic"),
    ):
        assert old in text
        text = text.replace(old, new)
    recipe.write_text(text, encoding="utf-8")
    result = run("debug-quantization", recipe, "--target", "dynamic")
    assert result.code == 2
    assert "no data to run the model on" in result.err


def test_too_many_samples_are_refused(recipe, run) -> None:
    result = run("debug-quantization", recipe, "--target", "dynamic", "--samples", 451)
    assert result.code == 8
    assert "has 450 samples" in result.err


def test_several_recipes_are_refused(recipe, run) -> None:
    result = run("debug-quantization", recipe, recipe.parents[1] / "digits")
    assert result.code == 2
    assert "2 recipes are named" in result.err
