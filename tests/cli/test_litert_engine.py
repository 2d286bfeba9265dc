"""Recipes with ``engine: litert``."""

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
