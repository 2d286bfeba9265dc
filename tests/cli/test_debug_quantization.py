"""The verb debug-quantization: layers and tensors by what eight bits do to them."""

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
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The digits in eight bits, in a folder of its own."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    for name in ("digits", "digits-eight-bits"):
        shutil.copytree(RECIPES / name, tmp_path / name)
    return tmp_path / "digits-eight-bits" / "recipe.yaml"


@pytest.mark.parametrize("target", ["dynamic", "observed"])
def test_layers_and_tensors_are_ranked(recipe, run, target: str) -> None:
    told = run("debug-quantization", recipe, "--target", target, "--json", "--samples", 40)
    assert told.code == 0
    found = json.loads(told.out)
    assert (found["recipe"], found["target"]) == ("digits-eight-bits", target)
    assert (found["data"], found["samples"]) == ("data/test.npz", 40)
    layers = found["layers"]
    assert {layer["layer"] for layer in layers} == {
        "Conv/Conv2D",
        "Pointwise/Conv2D",
        "Dense/BatchNorm/batchnorm/mul_1",  # the product into which its batch norm was folded
        "Logits/MatMul",
    }
    alone = [layer["alone"]["sqnr"] for layer in layers]
    assert alone == sorted(alone)
    # One layer alone does less than all of them together, as far as errors do not cancel.
    assert alone[-1] > found["whole"]["sqnr"]
    tensors = found["tensors"]
    assert [t["damage"]["sqnr"] for t in tensors] == sorted(t["damage"]["sqnr"] for t in tensors)
    weights = [t["damage"] for t in tensors if t["is_weights"] and t["damage"]["elements"] > 1000]
    assert weights
    for damage in weights:
        # Weights are rounded so that their sums stay, not each to its nearest step.
        assert damage["rmse_over_scale"] == pytest.approx(HEALTHY_RMSE, rel=0.15)
        assert damage["clipped"] == 0


def test_data_with_fewer_samples_is_taken_whole(recipe, run) -> None:
    labelled = np.load(recipe.parents[1] / "digits" / "data" / "test.npz")
    np.savez(
        recipe.parents[1] / "digits" / "data" / "test.npz",
        **{n: a[:3] for n, a in labelled.items()},
    )
    told = run("debug-quantization", recipe, "--target", "observed", "--json")
    assert told.code == 0, told.err
    assert json.loads(told.out)["samples"] == 3


def test_the_text_has_a_rule_that_leaves_the_worst_in_float(recipe, run) -> None:
    told = run("debug-quantization", recipe, "--target", "observed", "--tensors", 2)
    assert told.code == 0
    assert "digits-eight-bits/observed: 16 samples of data/test.npz" in told.out
    assert "2 of " in told.out
    rules = next(line for line in told.out.splitlines() if "rules: [" in line).strip()
    plain = "quantize: {mode: nodes, ranges: observed}"
    ruled = f"quantize: {{mode: nodes, ranges: observed, {rules}}}"
    text = recipe.read_text(encoding="utf-8")
    assert plain in text
    recipe.write_text(text.replace(plain, ruled), encoding="utf-8")
    (target,) = build(recipe, "out", targets=["observed"]).targets
    ops = target.report.ops
    assert ops.get("QuantizedConv2D", 0) + ops.get("QuantizedMatMul", 0) == 1
    left = run("debug-quantization", recipe, "--target", "observed", "--json")
    assert len(json.loads(left.out)["layers"]) == 1


def test_the_same_answer_twice(recipe, run) -> None:
    once, again = (run("debug-quantization", recipe, "--target", "dynamic") for _ in range(2))
    assert once.out == again.out


@pytest.mark.parametrize(
    ("flags", "message", "hint"),
    [
        ((), "2 targets of 'digits-eight-bits' are quantized", "--target: dynamic, observed"),
        (("--target", "weights"), "has no target 'weights'", "dynamic, observed"),
        (("--target", "observed", "--samples", 0), "--samples is at least 1", "16"),
        (("--target", "observed", "--tensors", -1), "--tensors at least 0", "16"),
    ],
)
def test_what_makes_no_sense_is_refused(recipe, run, flags, message: str, hint: str) -> None:
    told = run("debug-quantization", recipe, *flags)
    assert told.code == 2
    assert message in told.err
    assert hint in told.err


def test_a_recipe_without_eight_bits_and_one_without_data(recipe, run) -> None:
    told = run("debug-quantization", recipe.parents[1] / "digits" / "recipe.yaml")
    assert told.code == 2
    assert "no target of 'digits' has quantize_nodes" in told.err
    text = recipe.read_text(encoding="utf-8")
    for given, instead in (
        ("validation: {max_drop: 0.005}", "validation: null"),
        ("calibration: {data: ../digits/data/calibration.npz}\n", ""),
        ("ranges: observed", "ranges: dynamic"),
    ):
        assert given in text
        text = text.replace(given, instead)
    recipe.write_text(text, encoding="utf-8")
    told = run("debug-quantization", recipe, "--target", "dynamic")
    assert told.code == 2
    assert "no data to run the model on" in told.err


def test_more_samples_than_there_are(recipe, run) -> None:
    told = run("debug-quantization", recipe, "--target", "dynamic", "--samples", 451)
    assert told.code == 8
    assert "has 450 samples" in told.err


def test_several_recipes_are_refused(recipe, run) -> None:
    told = run("debug-quantization", recipe, recipe.parents[1] / "digits")
    assert told.code == 2
    assert "2 recipes are named" in told.err
