"""The check stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.check.run import run_check, run_default_check
from mobileprep.building.stages.check.spec import CheckStage, DefaultCheckStage
from mobileprep.errors import AccuracyError, InvalidGraphError
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import constant
from mobileprep.graph.tensor import Tensor
from tests.building.stages.jobs import NUMPY, assets, classifier, interface, job, json_output, slots

FED = np.array([[[1, 2, 3]], [[0, 5, -10]]], np.float32)


def check_job(
    folder: Path, graph: Graph, limit: float | None = None, expected: np.ndarray = FED
) -> Job[CheckStage]:
    for name, arrays in (("samples", FED), ("expected", expected)):
        write_arrays(folder / f"{name}.npz", {f"{i}-0": a for i, a in enumerate(arrays)})
    inputs = {
        "graph": graph,
        "interface": interface("y"),
        "assets": assets(folder),
        "samples": folder / "samples.npz",
        "expected": folder / "expected.npz",
    }
    stage = CheckStage(step="some_step", max_difference=limit, engine=NUMPY, **slots(*inputs))
    return job(folder, stage, **inputs)


def test_largest_difference_of_all_samples_is_recorded(tmp_path: Path) -> None:
    done = check_job(tmp_path, classifier(shift=0.25))
    run_check(done)
    record = json_output(done, "check.json")
    assert (record["step"], record["output"]) == ("some_step", "y")
    # The peak of the source is 10.
    assert (record["largest_difference"], record["share_of_peak"]) == (0.25, 0.025)
    assert record["engine"]["name"] == "numpy"


@pytest.mark.parametrize(("limit", "passes"), [(0.025, True), (0.0249, False), (0, False)])
def test_difference_may_reach_the_limit(tmp_path: Path, limit: float, passes: bool) -> None:
    done = check_job(tmp_path, classifier(shift=0.25), limit)
    if passes:
        run_check(done)
        assert json_output(done, "check.json")["max_difference"] == limit
        return
    with pytest.raises(AccuracyError) as caught:
        run_check(done)
    assert caught.value.message == (
        "after some_step the output 'y' differs from the source's by 0.25, 0.025 of its peak 10; "
        f"at most {limit:.3g} is allowed"
    )
    assert caught.value.where == "recipe.yaml:7:1"
    assert not (done.folder / "check.json").exists()


def test_large_difference_without_a_limit_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    done = check_job(tmp_path, classifier(shift=2))
    structs.force_setattr(done, "warn", warnings.append)
    run_check(done)
    (warning,) = warnings
    assert "after some_step the output 'y' differs from the source's by 2, 0.2 of its pe" in warning


def test_step_that_produces_nan_is_named(tmp_path: Path) -> None:
    message = "after some_step the output 'y' is NaN or infinite where the source's is not"
    with pytest.raises(AccuracyError, match=message) as caught:
        run_check(check_job(tmp_path, classifier(shift=np.nan)))
    assert caught.value.where == "recipe.yaml:7:1"


def test_samples_for_which_the_source_is_nan_are_refused(tmp_path: Path) -> None:
    expected = np.where(FED == 3, np.nan, FED).astype(np.float32)
    with pytest.raises(AccuracyError) as caught:
        run_check(check_job(tmp_path, classifier(), expected=expected))
    assert caught.value.message == (
        "the samples are unusable: for the output 'y' the source gives NaN or infinity where the "
        "graph after some_step gives numbers; fed: x [1, 3] from -10 to 5"
    )
    assert "check: {data: FILE.npz}" in caught.value.hint


def test_step_that_changes_a_shape_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccuracyError, match=r"'y' has the shape \[1, 3\]; the source's is \[3\]"):
        run_check(check_job(tmp_path, classifier(), expected=FED[:, 0]))


def test_step_that_breaks_the_graph_is_named(tmp_path: Path) -> None:
    nodes = [constant("w", Tensor.of(np.eye(2, dtype=np.float32))) if n.name == "w" else n
             for n in classifier()]  # fmt: skip
    with pytest.raises(
        InvalidGraphError, match="after some_step the graph does not run: node 'pr"
    ) as c:
        run_check(check_job(tmp_path, Graph(nodes)))
    assert c.value.where == "recipe.yaml:7:1"
    with pytest.raises(
        InvalidGraphError, match="after some_step the graph does not run: the fetch 'y'"
    ):
        run_check(check_job(tmp_path, Graph(nodes[:-1])))


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
