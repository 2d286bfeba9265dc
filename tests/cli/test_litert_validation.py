"""Validation, check, and budget of a .tflite target, and the measured basis that they print."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mobileprep.building.plan import engines
from tests.cli.conftest import Run

GRAPH = "measured on the graph before conversion (numpy)"


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan as if ai-edge-litert were not installed."""
    version = engines.engine_version
    monkeypatch.setattr(
        engines, "engine_version", lambda name: "" if name == "litert" else version(name)
    )


def tflite_recipe(recipe: Path, validation: str = "", more: str = "", target: str = "") -> None:
    """Replace the targets of the digits recipe by one .tflite target, and add text to sections."""
    text = recipe.read_text("utf-8").partition("\ntargets:")[0]
    text = text.replace("validation:\n", f"validation:\n  {validation}\n")
    text += f"\n{more}\ntargets: {{phone: {{artifact: tflite{target}}}}}\n"
    recipe.write_text(text, "utf-8")


def phone_report() -> dict[str, Any]:
    return json.loads(Path("out/digits/phone/report.json").read_text("utf-8"))


@pytest.mark.usefixtures("litert")
def test_packaged_file_is_measured_by_default(digits: Path, run: Run) -> None:
    tflite_recipe(digits)
    result = run("build", digits)
    assert result.code == 0, result.err
    report = phone_report()
    source, model = report["engines"]
    assert (source["name"], model["name"], model["samples"]) == ("numpy", "litert", 4)
    assert model["within"] <= 1e-5
    (metric,) = report["accuracy"]["metrics"]
    assert metric["after"] == metric["before"] > 0.9
    basis = f"measured on digits.tflite (litert {model['version']})"
    assert report["accuracy"]["basis"] == basis
    assert f"; {basis}\n" in result.out
    manifest = json.loads(Path("out/digits/phone/manifest.json").read_text("utf-8"))
    assert manifest["settings"]["engine_versions"].keys() == {"litert"}


@pytest.mark.usefixtures("litert")
def test_accuracy_drop_of_the_file_fails_the_build(digits: Path, run: Run) -> None:
    tflite_recipe(digits, target=", then: [round_weights: {num_steps: 2}]")
    result = run("build", digits)
    assert result.code == 8
    assert "at most 0.01 is allowed; measured on digits.tflite (litert " in result.err


@pytest.mark.usefixtures("missing")
@pytest.mark.parametrize("verb", ["build", "validate"])
@pytest.mark.parametrize("section", ["validation", "check"])
def test_missing_interpreter_is_reported_with_its_package(
    verb: str, section: str, digits: Path, run: Run
) -> None:
    check = {"validation": "", "check": "check: true"}[section]
    tflite_recipe(digits, "engine: graph" if check else "", check)
    result = run(verb, digits)
    assert result.code == 6
    assert f"{section} runs the .tflite file, which needs ai-edge-litert" in result.err
    assert "pip install 'mobileprep[litert]'" in result.err
    assert "stages ran" not in result.err
    assert not Path("out").exists()


@pytest.mark.usefixtures("missing")
def test_measurements_of_the_graph_are_labeled(digits: Path, run: Run) -> None:
    target = ", budget: {parameters: 1000000, flops: 1 GFLOP, activation_bytes: 1 MB}"
    tflite_recipe(digits, "engine: graph", "check: {engine: graph}", target)
    result = run("build", digits)
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert next(line for line in lines if line.startswith("accuracy ")).endswith(f"; {GRAPH}")
    checks = [line for line in lines if line.startswith("check ")]
    assert len(checks) == 2
    assert all("measured on the graph before conversion" in line for line in checks)
    counted = [line for line in lines if line.startswith(("budget ", "model ", "ops "))]
    assert len(counted) == 5
    assert all("counted on the graph before conversion" in line for line in counted)
    report = phone_report()
    assert report["accuracy"]["basis"] == report["check"]["model"]["basis"] == GRAPH
    markdown = run("report", digits, "--format", "markdown").out
    assert f"top1 ({GRAPH})" in markdown
    assert f"samples, {GRAPH}:" in markdown


@pytest.mark.usefixtures("missing")
def test_accuracy_drop_of_the_graph_is_labeled(digits: Path, run: Run) -> None:
    tflite_recipe(digits, "engine: graph", target=", then: [round_weights: {num_steps: 2}]")
    result = run("build", digits)
    assert result.code == 8
    assert f"at most 0.01 is allowed; {GRAPH}" in result.err


@pytest.mark.usefixtures("missing")
def test_exceeded_budget_names_the_counted_graph(digits: Path, run: Run) -> None:
    tflite_recipe(digits, "engine: graph", target=", budget: {parameters: 10}")
    result = run("build", digits)
    assert result.code == 8
    assert "(counted on the graph before conversion)" in result.err


SMALL = "{phone: {platform: android, quantize: weights, sort: true}, lite: {artifact: tflite}}"
QUANTIZED = "{phone: {platform: android, quantize: {mode: nodes}}}"


def with_engine(recipe: Path, engine: str, targets: str) -> None:
    """Set the engine of the digits recipe, and add a check and a calibration."""
    text = recipe.read_text("utf-8").partition("\ntargets:")[0]
    sections = "calibration: {data: data/calibration.npz}\ncheck: true"
    recipe.write_text(f"{text}\n{sections}\nengine: {engine}\ntargets: {targets}\n", "utf-8")


def record(target: str, file: str) -> Any:
    return json.loads(Path("out/digits", target, file).read_text("utf-8"))


@pytest.mark.usefixtures("litert")
@pytest.mark.parametrize("engine", ["litert", "auto"])
def test_build_runs_graphs_with_litert(engine: str, digits: Path, run: Run) -> None:
    with_engine(digits, engine, SMALL)
    result = run("build", digits)
    assert result.code == 0, result.err
    for target in ("phone", "lite"):
        lines = record(target, "report.json")["engines"]
        ran = {line["graph"]: line for line in lines}
        assert {"source", "model", "after fold_batch_norms"} <= ran.keys()
        names = {line["name"] for line in lines}
        assert names == {"litert"} if engine == "litert" else "numpy" not in names
        assert all(line["samples"] and line["within"] <= 1e-5 for line in lines)
        versions = record(target, "manifest.json")["settings"]["engine_versions"]
        assert versions["litert"] == engines.engine_version("litert")
        assert ran["source"]["version"] == versions[ran["source"]["name"]]
    again = run("build", digits)
    assert "0 of " in again.out + again.err


@pytest.mark.usefixtures("litert")
def test_unsupported_graph_uses_the_next_engine(digits: Path, run: Run) -> None:
    with_engine(digits, "auto", QUANTIZED)
    result = run("build", digits)
    assert result.code == 0, result.err
    ran = {line["graph"]: line["name"] for line in record("phone", "report.json")["engines"]}
    assert ran["source"] in ("litert", "openvino")
    assert ran["model"] != "litert"


@pytest.mark.usefixtures("litert")
def test_litert_engine_refuses_quantized_graphs(digits: Path, run: Run) -> None:
    with_engine(digits, "litert", QUANTIZED)
    result = run("build", digits)
    assert result.code == 6
    assert re.search(r"recipe\.yaml:\d+:9: .*LiteRT cannot run the graph: ", result.err)
    assert "QuantizeV2 'image_eightbit/quantize'" in result.err
    assert "engine: auto" in result.err


@pytest.mark.parametrize("verb", ["build", "validate"])
def test_missing_package_is_reported_with_its_extra(
    verb: str, digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "engine_version", lambda _name: "")
    with_engine(digits, "litert", "{phone: {platform: android}}")
    result = run(verb, digits)
    assert result.code == 6
    assert "the engine litert, which is not installed" in result.err
    assert "pip install 'mobileprep[litert]'" in result.err
    assert not Path("out").exists()


@pytest.mark.usefixtures("litert")
def test_report_distinguishes_graphs_from_the_file(digits: Path, run: Run) -> None:
    with_engine(digits, "litert", "{lite: {artifact: tflite, quantize: {mode: int8}}}")
    result = run("build", digits)
    assert result.code == 0, result.err
    graphs, file = (line for line in result.out.splitlines() if line.startswith("engine "))
    assert "ran source, 6 transforms' graphs: agrees with numpy" in graphs
    assert "ran model: differs from the graph" in file
