"""Validation, check, and budget of a .tflite target: what they measure, and that they say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mobileprep.building.plan import engines
from tests.cli.conftest import Run

GRAPH = "measured on the graph before conversion (numpy)"


@pytest.fixture
def litert() -> None:
    """Skip a test that runs .tflite files if their interpreter is not installed."""
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan as if ai-edge-litert were not installed."""
    version = engines.engine_version
    monkeypatch.setattr(
        engines, "engine_version", lambda name: "" if name == "litert" else version(name)
    )


def tflite_recipe(recipe: Path, validation: str = "", more: str = "", target: str = "") -> None:
    """Give the digits recipe one .tflite target.

    Args:
        recipe: the recipe.
        validation: added to the section of that name.
        more: sections to add to the recipe.
        target: added to the target.
    """
    text = recipe.read_text("utf-8").partition("\ntargets:")[0]
    text = text.replace("validation:\n", f"validation:\n  {validation}\n")
    text += f"\n{more}\ntargets: {{phone: {{artifact: tflite{target}}}}}\n"
    recipe.write_text(text, "utf-8")


def report() -> dict[str, Any]:
    return json.loads(Path("out/digits/phone/report.json").read_text("utf-8"))


@pytest.mark.usefixtures("litert")
def test_the_packaged_file_is_measured_by_default(digits: Path, run: Run) -> None:
    tflite_recipe(digits)
    told = run("build", digits)
    assert told.code == 0, told.err
    found = report()
    source, model = found["engines"]
    assert (source["name"], model["name"], model["samples"]) == ("numpy", "litert", 4)
    assert model["within"] <= 1e-5
    (metric,) = found["accuracy"]["metrics"]
    assert metric["after"] == metric["before"] > 0.9
    basis = f"measured on digits.tflite (litert {model['version']})"
    assert found["accuracy"]["basis"] == basis
    assert f"; {basis}\n" in told.out
    manifest = json.loads(Path("out/digits/phone/manifest.json").read_text("utf-8"))
    assert manifest["settings"]["engine_versions"].keys() == {"litert"}


@pytest.mark.usefixtures("litert")
def test_a_file_that_loses_too_much_fails_the_build(digits: Path, run: Run) -> None:
    tflite_recipe(digits, target=", then: [round_weights: {num_steps: 2}]")
    told = run("build", digits)
    assert told.code == 8
    assert "at most 0.01 is allowed; measured on digits.tflite (litert " in told.err


@pytest.mark.usefixtures("missing")
@pytest.mark.parametrize("verb", ["build", "validate"])
@pytest.mark.parametrize("section", ["validation", "check"])
def test_without_the_interpreter_nothing_runs_and_its_package_is_named(
    verb: str, section: str, digits: Path, run: Run
) -> None:
    check = {"validation": "", "check": "check: true"}[section]
    tflite_recipe(digits, "engine: graph" if check else "", check)
    told = run(verb, digits)
    assert told.code == 6
    assert f"{section} runs the .tflite file, which needs ai-edge-litert" in told.err
    assert "pip install 'mobileprep[litert]'" in told.err
    assert "stages ran" not in told.err
    assert not Path("out").exists()


@pytest.mark.usefixtures("missing")
def test_every_line_about_the_graph_says_so(digits: Path, run: Run) -> None:
    target = ", budget: {parameters: 1000000, flops: 1 GFLOP, activation_bytes: 1 MB}"
    tflite_recipe(digits, "engine: graph", "check: {engine: graph}", target)
    told = run("build", digits)
    assert told.code == 0, told.err
    lines = told.out.splitlines()
    assert next(line for line in lines if line.startswith("accuracy ")).endswith(f"; {GRAPH}")
    checks = [line for line in lines if line.startswith("check ")]
    assert len(checks) == 2
    assert all("measured on the graph before conversion" in line for line in checks)
    counted = [line for line in lines if line.startswith(("budget ", "model ", "ops "))]
    assert len(counted) == 5
    assert all("counted on the graph before conversion" in line for line in counted)
    found = report()
    assert found["accuracy"]["basis"] == found["check"]["model"]["basis"] == GRAPH
    markdown = run("report", digits, "--format", "markdown").out
    assert f"top1 ({GRAPH})" in markdown
    assert f"samples, {GRAPH}:" in markdown


@pytest.mark.usefixtures("missing")
def test_a_missed_limit_of_the_graph_says_so(digits: Path, run: Run) -> None:
    tflite_recipe(digits, "engine: graph", target=", then: [round_weights: {num_steps: 2}]")
    told = run("build", digits)
    assert told.code == 8
    assert f"at most 0.01 is allowed; {GRAPH}" in told.err


@pytest.mark.usefixtures("missing")
def test_a_missed_budget_of_a_converted_model_says_what_was_counted(digits: Path, run: Run) -> None:
    tflite_recipe(digits, "engine: graph", target=", budget: {parameters: 10}")
    told = run("build", digits)
    assert told.code == 8
    assert "(counted on the graph before conversion)" in told.err
