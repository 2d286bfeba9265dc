"""Builds with ``streaming``: files that run a few time steps at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mobileprep.building.builder import build
from mobileprep.building.stages.package.report import lite_lines
from mobileprep.building.stages.package.spec import LiteEnd, LiteInterface
from mobileprep.errors import UnsupportedError
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.files import write_graph
from mobileprep.graph.tensor import Array
from tests.litert.one_op import numbers
from tests.litert.test_fused_cells import f
from tests.litert.test_streaming import LSTM, ZEROS, X, reversed_steps, whole, with_nodes

pytest.importorskip("ai_edge_litert", reason="ai-edge-litert is not installed")

RECIPE = """\
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {}}
outputs: [y]
check: {data: data.npz}
integration: {languages: [java, kotlin, swift, cpp]}
targets:
  whole: {artifact: tflite}
  stream: {artifact: tflite, streaming: true}
  chunks:
    artifact: tflite
    streaming: {steps: 5}
    calibration: {data: data.npz}
    quantize: {mode: int8, inference_input_type: uint8, inference_output_type: uint8}
  whole8:
    artifact: tflite
    calibration: {data: data.npz}
    quantize: {mode: int8, inference_input_type: uint8, inference_output_type: uint8}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    write_graph(tmp_path / "model.pb", with_nodes(whole(LSTM, ZEROS), f("y", "Tanh", "y0")))
    data: Array = numbers(4 * len(X), *X.shape[1:], seed=3)
    write_arrays(tmp_path / "data.npz", {"x": data})
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return path


def built(recipe: Path) -> dict[str, dict[str, Any]]:
    """The reports of all targets."""
    build(recipe, recipe.parent / "out", jobs=1, warn=lambda _: None)
    folders = sorted((recipe.parent / "out/r").glob("*/report.json"))
    return {file.parent.name: json.loads(file.read_text()) for file in folders}


def test_check_runs_the_file_on_whole_sequences(recipe: Path) -> None:
    reports = built(recipe)
    shares = {name: report["check"]["model"]["share_of_peak"] for name, report in reports.items()}
    assert shares["stream"] <= 1e-5
    assert 0 < shares["chunks"] == shares["whole8"]


def test_report_has_time_steps_and_states(recipe: Path) -> None:
    reports = built(recipe)
    assert reports["whole"]["lite"]["streaming"] is None
    lite = reports["chunks"]["lite"]
    inputs = {end["name"]: (end["dtype"], end["shape"]) for end in lite["inputs"]}
    assert inputs == {
        "x": ("uint8", [5, 2, 3]),
        "state_0": ("float32", [2, 4]),
        "state_1": ("float32", [2, 4]),
    }
    streaming = lite["streaming"]
    assert (streaming["steps"], streaming["inputs"]) == (5, {"x": 0})
    lines = list(lite_lines(msgspec.convert(lite, LiteInterface)))
    assert lines == [
        "stream   5 time steps a call: x, uint8 [5, 2, 3]",
        "  state state_0, float32 [2, 4]: state_0_next of the previous call",
        "  state state_1, float32 [2, 4]: state_1_next of the previous call",
    ]


def test_report_names_open_sizes() -> None:
    x = LiteEnd("x", "float32", (-1, -1, 40))
    lite = LiteInterface((x, LiteEnd("scale", "float32", (1,))), (x,))
    assert list(lite_lines(lite)) == [
        "open     input x, float32 [?, ?, 40]: resize it before a run"
    ]


def test_code_feeds_one_call_and_carries_states(recipe: Path) -> None:
    built(recipe)
    folder = recipe.parent / "out/r/chunks/integration"
    java = (folder / "java/mobileprep/model/PreparedModel.java").read_text()
    assert "values of shape [5, 2, 3]" in java
    assert "states = {new byte[32], new byte[32]}" in java
    whole_code = recipe.parent / "out/r/whole/integration/cpp/PreparedModel.cc"
    assert "Reset()" not in whole_code.read_text()


def test_node_that_needs_the_whole_sequence_is_an_error(recipe: Path) -> None:
    graph = with_nodes(whole(LSTM, ZEROS), *reversed_steps("y", "y0"))
    write_graph(recipe.parent / "model.pb", graph)
    with pytest.raises(UnsupportedError, match="ReverseV2 'y': it reverses the time steps") as e:
        built(recipe)
    assert e.value.where.startswith(str(recipe))
    assert "leave out 'streaming'" in e.value.hint
