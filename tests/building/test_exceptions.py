"""Builds with ``quantize: auto`` of .tflite files: which operators are excepted from int8."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.building.report.markdown import reports_markdown
from mobileprep.building.report.text import report_text
from mobileprep.building.stages.exceptions.report import exception_lines
from mobileprep.building.stages.exceptions.spec import ChosenException, ExceptionsRecord
from mobileprep.building.targets import plan_state
from mobileprep.building.verdicts import verdict_lines, verdicts
from mobileprep.errors import AccuracyError
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.load import load_recipe
from tests.building.stages.jobs import op, placeholder

RECIPE = """\
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {shape: [-1, 32]}}
outputs: [y]
calibration: {data: data.npz, method: min_max}
validation: {data: data.npz, metric: peak_agreement, at_least: %s}
device: smartphone
targets: {phone: {artifact: tflite, quantization_report: false, quantize: %s}}
"""
SUMS = 4
INT8 = "{mode: int8, repair: []}"
AUTO = "{mode: auto, repair: []}"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A long sum of small terms: 8-bit sums round again and again, 16-bit sums do not."""
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    draw = np.random.default_rng(7)
    nodes, last = [placeholder((-1, 32))], "x"
    for index in range(SUMS):
        weights = draw.normal(0, 0.03, (32, 32)).astype(np.float32)
        nodes += [
            constant(f"w{index}", Tensor.of(weights)),
            op(f"term{index}", "MatMul", "x", f"w{index}"),
            op(f"sum{index}", "AddV2", last, f"term{index}"),
        ]
        last = f"sum{index}"
    weights = draw.normal(0, 0.3, (32, 8)).astype(np.float32)
    nodes += [constant("w", Tensor.of(weights)), op("y", "MatMul", last, "w")]
    write_graph(tmp_path / "model.pb", Graph(nodes))
    x = draw.normal(0, 1, (24, 32)).astype(np.float32)
    write_arrays(tmp_path / "data.npz", {"x": x})
    return tmp_path / "recipe.yaml"


def built(recipe: Path, limit: object, quantize: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The report in JSON, and the tasks that ran."""
    recipe.write_text(RECIPE % (limit, quantize))
    done = build(recipe, recipe.parent / "out", jobs=1, warn=lambda _: None)
    text = (recipe.parent / "out/r/phone/report.json").read_text()
    return json.loads(text), done.ran


def model(recipe: Path) -> bytes:
    return (recipe.parent / "out/r/phone/r.tflite").read_bytes()


def agreement(report: dict[str, Any]) -> float:
    (metric,) = report["accuracy"]["metrics"]
    return float(metric["after"])


def test_no_exceptions_where_int8_is_good_enough(recipe: Path) -> None:
    report, _ = built(recipe, 0, INT8)
    plain = model(recipe)
    assert "exceptions" not in report
    report, ran = built(recipe, 0, AUTO)
    found = report["exceptions"]
    assert (found["rules"], found["exceptions"], found["tries"]) == ([], [], 1)
    assert found["int8_macs"] == found["integer_macs"] == 1
    assert model(recipe) == plain
    # The second trial has nothing to try, and leaves what the first has left.
    assert not [task for task in ran if task.endswith("evaluate-2")]
    assert built(recipe, 0, AUTO)[1] == ()


def test_sums_are_excepted_and_the_rules_give_the_same_file(recipe: Path) -> None:
    report, _ = built(recipe, 0, INT8)
    before = agreement(report)
    limit = round(1 - 0.75 * (1 - before), 6)
    report, _ = built(recipe, limit, AUTO)
    assert agreement(report) >= limit > before
    found = report["exceptions"]
    assert found["integer_macs"] == 1 >= found["int8_macs"] >= 0.9
    names = {n for one in found["exceptions"] for some in one["modes"].values() for n in some}
    assert any(name.startswith("sum") for name in names)
    assert all(one["gain"] > 0 for one in found["exceptions"])
    assert all(one["latency_ms"] is not None for one in found["exceptions"])
    assert found["device"]
    chosen = model(recipe)
    (target,) = build(recipe, recipe.parent / "out", warn=lambda _: None).targets
    assert f"\n  as rules: [{', '.join(found['rules'])}]\n" in report_text(target.report)
    assert "\n| nodes | int8 MACs | error | bytes | latency |\n" in reports_markdown(
        [target.report]
    )
    rules = ", ".join(found["rules"])
    report, _ = built(recipe, 0, f"{{mode: int8, repair: [], rules: [{rules}]}}")
    assert model(recipe) == chosen
    size = report["model"]["bytes"]
    built(recipe, 0, INT8)
    assert size - len(model(recipe)) == sum(one["bytes"] for one in found["exceptions"])


def test_unreachable_limit_names_the_closest_try(recipe: Path) -> None:
    built(recipe, 0, AUTO)
    kept = model(recipe)
    with pytest.raises(AccuracyError) as caught:
        built(recipe, 2, AUTO)
    assert caught.value.exit_code == 8
    message = str(caught.value)
    assert "tries of 'quantize: auto' keeps the limits; nearest is the one with" in message
    assert "% of the multiply-accumulates in int8:" in message
    assert "at least 2.0 is required" in message
    assert "lower 'min_int8_macs', which is 0.9" in caught.value.hint
    assert "\n    rules: [{mode: int16x8, nodes: '^" in caught.value.hint
    assert caught.value.where.endswith("recipe.yaml:7:1")
    assert model(recipe) == kept


@pytest.mark.slow
def test_limit_of_multiply_accumulates_and_rules_of_the_recipe(recipe: Path) -> None:
    report, _ = built(recipe, 0, INT8)
    limit = round(1 - 0.3 * (1 - agreement(report)), 6)
    with pytest.raises(AccuracyError):
        built(recipe, limit, "{mode: auto, repair: [], min_int8_macs: 1}")
    rules = "rules: [{ops: [AddV2], mode: int8}]"
    with pytest.raises(AccuracyError, match="none of"):
        built(recipe, limit, f"{{mode: auto, repair: [], {rules}}}")
    report, _ = built(recipe, limit, "{mode: auto, repair: [], min_int8_macs: 0}")
    assert agreement(report) >= limit
    assert report["settings"]["quantize"]["min_int8_macs"] == 0


def test_summary_has_the_share_in_integers() -> None:
    exception = ChosenException({"int16x8": ("a",)}, 0.75, 1.5, 120)
    record = ExceptionsRecord(("{mode: int16x8, nodes: '^(a)$'}",), 0.75, 1.0, 3, (exception,))
    assert next(exception_lines(record)) == (
        "auto     1 node with 16-bit activations, 75.00% of the multiply-accumulates in int8, "
        "100.00% in integers; 3 tries"
    )


def test_usual_repairs(recipe: Path) -> None:
    def steps(quantize: str) -> list[str]:
        recipe.write_text(RECIPE % (0, quantize))
        (target,) = load_recipe(recipe).targets
        return [step.name for step in target.transforms]

    assert steps("auto") == ["equalize_ranges", "reconstruct_weights"]
    assert steps(AUTO) == []
    assert steps("{mode: auto, repair: [correct_bias]}") == ["correct_bias"]
    assert steps("int8") == []


def test_plan_shows_trials_in_one_line(recipe: Path) -> None:
    recipe.write_text(RECIPE % (0, AUTO))
    state = plan_state([load_recipe(recipe)])
    lines = list(verdict_lines(verdicts(state, recipe.parent / "out"), verbose=False))
    (line,) = (line for line in lines if "exceptions: " in line)
    assert line.startswith("r/phone/exceptions: 49 trial stages: ")
