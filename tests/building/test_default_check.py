"""Quantized targets without ``check`` or ``validation``: a check that warns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.builder import build
from mobileprep.building.report.collect import Report, report_data
from mobileprep.building.report.text import report_text
from mobileprep.core.files import sha256_file
from mobileprep.formats.arrays import write_arrays
from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node, constant
from mobileprep.graph.refs import parse_ref
from mobileprep.graph.tensor import Tensor
from mobileprep.recipe.load import load_recipe
from tests.building.stages.jobs import op, placeholder

RECIPE = """\
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {dtype: float32%s}}
outputs: [y]
%s
targets: {phone: {%s}}
"""
SHAPE = ", shape: [-1, 16]"
WEIGHTS = "quantize: {mode: weights, minimum_size: 16}"


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four classes, of which 8 bits for the whole tensor lose the three with small weights."""
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(5)
    weights = draw.normal(0, 0.3, (16, 4)).astype(np.float32)
    weights[:, 3] = 0
    weights[0, 3] = -400
    write_model(DType.FLOAT, weights)


def write_model(dtype: DType, weights: np.ndarray) -> None:
    nodes = [placeholder((-1, 16), dtype), constant("w", Tensor.of(weights))]
    write_graph(Path("model.pb"), Graph([*nodes, op("y", "MatMul", "x", "w")]))


def report_of(target: str, sections: str = "", shape: str = SHAPE) -> tuple[Report, list[str]]:
    """The report of a build, and the warnings that it printed."""
    Path("recipe.yaml").write_text(RECIPE % (shape, sections, target))
    warnings: list[str] = []
    recipe = load_recipe(Path("recipe.yaml"), environ={})
    run = build([recipe], Path("out"), warn=warnings.append)
    return run.targets[0].report, warnings


def test_classes_that_flip_are_warned_of_everywhere() -> None:
    report, warnings = report_of(WEIGHTS)
    (warning,) = [text for text in warnings if "drawn samples" in text]
    assert "samples have another top-1 class in 'y'" in warning
    order = "granularity: channel", "equalize_ranges", "float16"
    assert [part for part in order if part in warning] == list(order)
    assert warning.index(order[0]) < warning.index(order[1]) < warning.index(order[2])
    warning = warning.removeprefix("r/01-quantize_weights-check: ")
    assert warning in report.warnings
    assert warning in report_data(report)["warnings"]
    assert warning in report_text(report)
    assert report.check is not None
    assert report.check.step == "quantize_weights"
    assert report.steps[-1].share_of_peak == report.check.share_of_peak


def test_advice_of_the_warning_helps() -> None:
    report, warnings = report_of(
        "quantize: {mode: weights, granularity: channel, minimum_size: 16}"
    )
    assert warnings == []
    assert report.check is not None
    assert report.check.share_of_peak < 0.01


def test_the_model_is_the_same_without_the_check() -> None:
    report_of(WEIGHTS)
    checked = sha256_file(Path("out/r/phone/r.pb"))
    report, warnings = report_of(f"{WEIGHTS}, check: false")
    assert (warnings, report.check) == ([], None)
    assert sha256_file(Path("out/r/phone/r.pb")) == checked


def test_recipe_check_replaces_the_default_check() -> None:
    write_arrays(Path("data.npz"), {"x": np.eye(16, dtype=np.float32)})
    report, _ = report_of(WEIGHTS, "validation: {data: data.npz, metric: peak_agreement}")
    assert report.check is None
    report, _ = report_of(WEIGHTS, "check: true")
    assert report.check is not None
    assert not any("another top-1" in warning for warning in report.warnings)


def test_the_samples_of_the_calibration_serve_as_well() -> None:
    data = np.random.default_rng(1).random((20, 16), np.float32)
    write_arrays(Path("data.npz"), {"x": data})
    quantize = "quantize: {mode: nodes, ranges: observed}"
    report, _ = report_of(quantize, "calibration: {data: data.npz}")
    assert report.check is not None
    assert (report.check.data, report.check.samples) == ("data.npz", 8)


def test_a_quantized_step_of_the_chain_is_checked_too() -> None:
    _, (warning,) = report_of("sort: true", "transforms: [{quantize_weights: {minimum_size: 16}}]")
    assert "after quantize_weights, on 8 drawn samples" in warning


def test_floats_have_no_default_check() -> None:
    report, warnings = report_of("sort: true")
    assert (report.check, warnings) == (None, [])


def test_samples_that_cannot_be_drawn_are_one_line() -> None:
    text = attr.dtype(DType.FLOAT)
    nodes = [
        placeholder((-1,), DType.STRING),
        Node("numbers", "StringToNumber", (parse_ref("x"),), attrs={"out_type": text}),
        constant("shape", Tensor.of(np.array([-1, 1], np.int32))),
        op("rows", "Reshape", "numbers", "shape"),
        constant("w", Tensor.of(np.ones((1, 2000), np.float32))),
        op("y", "MatMul", "rows", "w"),
    ]
    write_graph(Path("model.pb"), Graph(nodes))
    Path("recipe.yaml").write_text(
        "version: 1\nname: r\nsource: {frozen: model.pb}\ninputs: {x: {dtype: string}}\n"
        "outputs: [y]\ntargets: {phone: {quantize: weights}}\n"
    )
    warnings: list[str] = []
    recipe = load_recipe(Path("recipe.yaml"), environ={})
    (built,) = build([recipe], Path("out"), warn=warnings.append).targets
    (warning,) = warnings
    assert "quantize_weights was not checked against the source: no sample can be dra" in warning
    assert "check: {data: FILE.npz}" in warning
    assert "\n" not in warning
    assert built.report.warnings == (warning.partition(": ")[2],)


def test_a_tflite_file_is_checked_as_it_ships() -> None:
    pytest.importorskip("ai_edge_litert")
    data = np.random.default_rng(1).random((20, 16), np.float32)
    write_arrays(Path("data.npz"), {"x": data})
    report, _ = report_of("artifact: tflite, quantize: int8", "calibration: {data: data.npz}")
    assert report.check is not None
    assert report.check.step == ""
    assert report.check.model is not None
    assert report.check.model.basis.startswith("measured on r.tflite (litert ")
    assert report.check.share_of_peak > 0
    assert [line.name for line in report.engines] == ["litert"]


def test_a_tflite_file_without_litert_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mobileprep.building.stages.check.spec.engine_version", lambda _name: "")
    report, (warning,) = report_of("artifact: tflite, quantize: weights")
    assert "LiteRT is not installed; pip install 'mobileprep[litert]'" in warning
    assert report.check is None
