"""Recipes whose graphs LiteRT runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mobileprep.building.plan import engines
from tests.cli.conftest import Run

SMALL = "{phone: {platform: android, quantize: weights, sort: true}, lite: {artifact: tflite}}"
QUANTIZED = "{phone: {platform: android, quantize: {mode: nodes}}}"


@pytest.fixture
def litert() -> None:
    """Skip a test that runs graphs with LiteRT if it is not installed."""
    pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")


def with_engine(recipe: Path, engine: str, targets: str) -> None:
    """Let an engine run the digits recipe, with a check of each step and a calibration."""
    text = recipe.read_text("utf-8").partition("\ntargets:")[0]
    sections = "calibration: {data: data/calibration.npz}\ncheck: true"
    recipe.write_text(f"{text}\n{sections}\nengine: {engine}\ntargets: {targets}\n", "utf-8")


def record(target: str, file: str) -> Any:
    return json.loads(Path("out/digits", target, file).read_text("utf-8"))


@pytest.mark.usefixtures("litert")
@pytest.mark.parametrize("engine", ["litert", "auto"])
def test_a_recipe_is_built_with_litert(engine: str, digits: Path, run: Run) -> None:
    with_engine(digits, engine, SMALL)
    told = run("build", digits)
    assert told.code == 0, told.err
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
def test_a_graph_that_litert_cannot_run_falls_to_the_next_engine(digits: Path, run: Run) -> None:
    with_engine(digits, "auto", QUANTIZED)
    told = run("build", digits)
    assert told.code == 0, told.err
    ran = {line["graph"]: line["name"] for line in record("phone", "report.json")["engines"]}
    assert ran["source"] in ("litert", "openvino")
    assert ran["model"] != "litert"


@pytest.mark.usefixtures("litert")
def test_litert_by_name_refuses_quantized_graphs_at_its_line(digits: Path, run: Run) -> None:
    with_engine(digits, "litert", QUANTIZED)
    told = run("build", digits)
    assert told.code == 6
    assert re.search(r"recipe\.yaml:\d+:9: .*LiteRT cannot run the graph: ", told.err)
    assert "QuantizeV2 'image_eightbit/quantize'" in told.err
    assert "engine: auto" in told.err


@pytest.mark.parametrize("verb", ["build", "validate"])
def test_without_the_package_nothing_runs_and_the_extra_is_named(
    verb: str, digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "engine_version", lambda _name: "")
    with_engine(digits, "litert", "{phone: {platform: android}}")
    told = run(verb, digits)
    assert told.code == 6
    assert "the engine litert, which is not installed" in told.err
    assert "pip install 'mobileprep[litert]'" in told.err
    assert not Path("out").exists()


@pytest.mark.usefixtures("litert")
def test_the_report_tells_graphs_from_a_file_that_is_apart(digits: Path, run: Run) -> None:
    with_engine(digits, "litert", "{lite: {artifact: tflite, quantize: {mode: int8}}}")
    told = run("build", digits)
    assert told.code == 0, told.err
    graphs, file = (line for line in told.out.splitlines() if line.startswith("engine "))
    assert "ran source, 6 transforms' graphs: agrees with numpy" in graphs
    assert "ran model: differs from the graph" in file
