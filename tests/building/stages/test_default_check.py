"""The default check stage: it warns with its evidence, and never fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from mobileprep.building.stages.check.run import run_default_check
from mobileprep.building.stages.check.spec import DefaultCheckStage
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.graph import Graph
from tests.building.stages.jobs import NUMPY, assets, classifier, interface, job, left, slots

FED = np.array([[[1, 2, 3]], [[0, 5, -10]]], np.float32)
BY_CHANNEL = "`quantize: {mode: weights, granularity: channel}`"


def checked(
    folder: Path,
    graph: Graph,
    expected: np.ndarray = FED,
    *,
    problem: str = "",
    alternatives: tuple[str, ...] = (BY_CHANNEL, "`quantize: float16`"),
) -> tuple[dict[str, Any], list[str]]:
    """The record that the stage leaves, and its warnings."""
    for name, runs in (("samples", FED), ("expected", expected)):
        write_arrays(
            folder / f"{name}.npz",
            {f"{i}-0": run_default_check for i, run_default_check in enumerate(runs)},
        )
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
    asked = DefaultCheckStage(
        step="quantize_weights", number=2, alternatives=alternatives, engine=NUMPY, **slots(*inputs)
    )
    done = job(folder, asked, **inputs)
    warnings: list[str] = []
    structs.force_setattr(done, "warn", warnings.append)
    run_default_check(done)
    return left(done, "default_check.json"), warnings


def test_small_differences_are_recorded_without_a_warning(tmp_path: Path) -> None:
    record, warnings = checked(tmp_path, classifier(shift=0.25))
    assert warnings == record["warnings"] == []
    check = record["check"]
    assert (check["step"], check["output"], check["share_of_peak"]) == (
        *("quantize_weights", "y"),
        0.025,
    )
    assert record["number"] == 2


def test_a_warning_names_the_evidence_and_what_to_try(tmp_path: Path) -> None:
    record, warnings = checked(tmp_path, classifier(shift=3))
    assert warnings == record["warnings"]
    assert warnings[0] == (
        "after quantize_weights, on 2 drawn samples, the output 'y' differs from the source's "
        "by 3, 0.3 of its peak 10, and 1 of 2 samples have another top-1 class in 'y'; to change "
        f"less, try in this order: {BY_CHANNEL}, `quantize: float16`"
    )


def test_another_class_is_enough_for_a_warning(tmp_path: Path) -> None:
    expected = np.array([[[10, 9.8, 0]], [[0, 9.5, -10]]], np.float32)
    found = expected + np.array([[[-0.5, 0, 0]], [[0, 0, 0]]], np.float32)
    record, warnings = checked_with(tmp_path, expected, found)
    assert "another top-1 class" in warnings[0]
    assert "differs" not in warnings[0]
    assert record["check"]["share_of_peak"] == 0.05


def test_classes_that_tie_in_the_source_are_not_flips(tmp_path: Path) -> None:
    expected = np.array([[[10, 9.95, 0]], [[0, 9.5, -10]]], np.float32)
    found = expected + np.array([[[-0.5, 0, 0]], [[0, 0, 0]]], np.float32)
    _, warnings = checked_with(tmp_path, expected, found)
    assert warnings == []


def checked_with(
    folder: Path, expected: np.ndarray, found: np.ndarray
) -> tuple[dict[str, Any], list[str]]:
    """The stage on a model that gives ``found`` where the source gives ``expected``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.building.stages.test_default_check.FED", found)
        return checked(folder, classifier(), expected)


def test_what_cannot_be_checked_is_one_line(tmp_path: Path) -> None:
    record, warnings = checked(tmp_path, classifier(), problem="no sample can be drawn\nfor 'x'")
    assert warnings == record["warnings"]
    assert warnings[0] == (
        "quantize_weights was not checked against the source: no sample can be drawn; "
        "add 'check: {data: FILE.npz}' with an array for each input; 'check: false' turns this "
        "warning off"
    )
    assert record["check"] is None


def test_a_model_that_does_not_run_is_a_warning(tmp_path: Path) -> None:
    graph = classifier()
    broken = Graph([node for node in graph if node.name != "y"])
    record, (warning,) = checked(tmp_path, broken)
    assert "quantize_weights was not checked against the source: " in warning
    assert record["check"] is None


def test_a_shape_that_changed_is_a_warning(tmp_path: Path) -> None:
    record, (warning,) = checked(tmp_path, classifier(), FED[:, :, :2])
    assert "has the shape" in warning
    assert record["check"] is None


def test_without_an_alternative_the_weights_stay_float(tmp_path: Path) -> None:
    _, (warning,) = checked(tmp_path, classifier(shift=3), alternatives=())
    assert warning.endswith("leave the weights in float32, or validate on data of your own")
