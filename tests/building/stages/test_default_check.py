"""The default check stage, which warns and never fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from mobileprep.building.stages.check.run import run_default_check
from mobileprep.building.stages.check.spec import DefaultCheckStage
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.graph import Graph
from tests.building.stages.jobs import NUMPY, assets, classifier, interface, job, json_output, slots

FED = np.array([[[1, 2, 3]], [[0, 5, -10]]], np.float32)
BY_CHANNEL = "`quantize: {mode: weights, granularity: channel}`"


def run_stage(
    folder: Path,
    graph: Graph,
    expected: np.ndarray = FED,
    *,
    fed: np.ndarray = FED,
    problem: str = "",
    alternatives: tuple[str, ...] = (BY_CHANNEL, "`quantize: float16`"),
) -> tuple[dict[str, Any], list[str]]:
    """The record of the stage, and its warnings."""
    for name, arrays in (("samples", fed), ("expected", expected)):
        write_arrays(folder / f"{name}.npz", {f"{i}-0": a for i, a in enumerate(arrays)})
    drawn = {
        "origin": "drawn",
        "data": None,
        "samples": 0 if problem else 2,
        "inputs": {"x": "float32 [1, 3]"},
        "warnings": [problem] if problem else [],
    }
    inputs = {
        "graph": graph,
        "interface": interface("y"),
        "assets": assets(folder),
        "samples": folder / "samples.npz",
        "expected": folder / "expected.npz",
        "drawn": drawn,
    }
    stage = DefaultCheckStage(
        step="quantize_weights", number=2, alternatives=alternatives, engine=NUMPY, **slots(*inputs)
    )
    done = job(folder, stage, **inputs)
    warnings: list[str] = []
    structs.force_setattr(done, "warn", warnings.append)
    run_default_check(done)
    return json_output(done, "default_check.json"), warnings


def test_small_differences_are_recorded_without_a_warning(tmp_path: Path) -> None:
    record, warnings = run_stage(tmp_path, classifier(shift=0.25))
    assert warnings == record["warnings"] == []
    check = record["check"]
    assert (check["step"], check["output"], check["share_of_peak"]) == (
        *("quantize_weights", "y"),
        0.025,
    )
    assert record["number"] == 2


def test_warning_has_the_evidence_and_alternatives(tmp_path: Path) -> None:
    record, warnings = run_stage(tmp_path, classifier(shift=3))
    assert warnings == record["warnings"]
    assert warnings[0] == (
        "after quantize_weights, on 2 drawn samples, the output 'y' differs from the source's "
        "by 3, 0.3 of its peak 10, and 1 of 2 samples have another top-1 class in 'y'; to change "
        f"less, try in this order: {BY_CHANNEL}, `quantize: float16`"
    )


def test_changed_class_is_a_warning(tmp_path: Path) -> None:
    expected = np.array([[[10, 9.8, 0]], [[0, 9.5, -10]]], np.float32)
    fed = expected + np.array([[[-0.5, 0, 0]], [[0, 0, 0]]], np.float32)
    record, warnings = run_stage(tmp_path, classifier(), expected, fed=fed)
    assert "another top-1 class" in warnings[0]
    assert "differs" not in warnings[0]
    assert record["check"]["share_of_peak"] == 0.05


def test_nearly_tied_classes_may_change(tmp_path: Path) -> None:
    expected = np.array([[[10, 9.95, 0]], [[0, 9.5, -10]]], np.float32)
    fed = expected + np.array([[[-0.5, 0, 0]], [[0, 0, 0]]], np.float32)
    _, warnings = run_stage(tmp_path, classifier(), expected, fed=fed)
    assert warnings == []


def test_failed_check_is_a_single_line(tmp_path: Path) -> None:
    record, warnings = run_stage(tmp_path, classifier(), problem="no sample can be drawn\nfor 'x'")
    assert warnings == record["warnings"]
    assert warnings[0] == (
        "quantize_weights was not checked against the source: no sample can be drawn; "
        "add 'check: {data: FILE.npz}' with an array for each input; 'check: false' turns this "
        "warning off"
    )
    assert record["check"] is None


def test_model_that_does_not_run_is_a_warning(tmp_path: Path) -> None:
    graph = classifier()
    broken = Graph([node for node in graph if node.name != "y"])
    record, (warning,) = run_stage(tmp_path, broken)
    assert "quantize_weights was not checked against the source: " in warning
    assert record["check"] is None


def test_changed_shape_is_a_warning(tmp_path: Path) -> None:
    record, (warning,) = run_stage(tmp_path, classifier(), FED[:, :, :2])
    assert "has the shape" in warning
    assert record["check"] is None


def test_float_weights_are_suggested_without_alternatives(tmp_path: Path) -> None:
    _, (warning,) = run_stage(tmp_path, classifier(shift=3), alternatives=())
    assert warning.endswith("leave the weights in float32, or validate on data of your own")
