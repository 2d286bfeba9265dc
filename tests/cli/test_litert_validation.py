"""A validation that runs the .tflite file that ships."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mobileprep.errors import UnsupportedError
from mobileprep.plan import validation
from tests.cli.conftest import Run

pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")


def of_litert(recipe: Path, transforms: str = "") -> None:
    """The recipe with one target, a file for LiteRT, that LiteRT itself runs."""
    text = recipe.read_text("utf-8").partition("\ntargets:")[0]
    text = text.replace("validation:\n", "validation:\n  engine: litert\n")
    recipe.write_text(f"{text}\ntargets: {{phone: {{artifact: tflite{transforms}}}}}\n", "utf-8")


def report() -> dict[str, Any]:
    return json.loads(Path("out/digits/phone/report.json").read_text("utf-8"))


def test_the_shipped_file_is_measured_and_compared_with_its_graph(digits: Path, run: Run) -> None:
    of_litert(digits)
    told = run("build", digits)
    assert told.code == 0, told.err
    found = report()
    source, model = found["engines"]
    assert (source["name"], model["name"], model["samples"]) == ("numpy", "litert", 4)
    assert model["within"] <= 1e-5
    (metric,) = found["accuracy"]["metrics"]
    assert metric["after"] == metric["before"] > 0.9
    manifest = json.loads(Path("out/digits/phone/manifest.json").read_text("utf-8"))
    assert manifest["settings"]["engine_versions"].keys() == {"litert"}


def test_a_file_that_loses_too_much_fails_the_build(digits: Path, run: Run) -> None:
    of_litert(digits, ", then: [round_weights: {num_steps: 2}]")
    told = run("build", digits)
    assert told.code == 8
    assert "at most 0.01 is allowed" in told.err


def test_without_the_interpreter_its_package_is_named(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(target: object) -> None:
        message = "the validation asks for the engine litert, which is not installed"
        raise UnsupportedError(message, "pip install ai-edge-litert")

    monkeypatch.setattr(validation, "litert_choice", missing)
    of_litert(digits)
    told = run("build", digits)
    assert told.code == 6
    assert "pip install ai-edge-litert" in told.err
