"""Labels and outputs of each metric of an evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobileprep.building.stages.base import Job
from mobileprep.building.stages.evaluate.run import run
from mobileprep.building.stages.evaluate.spec import EvaluateStage, MeasuredMetric
from mobileprep.errors import AccuracyError
from mobileprep.formats.arrays import write_arrays
from mobileprep.graph.graph import Graph
from tests.building.stages.jobs import (
    NUMPY,
    assets,
    classifier,
    files,
    interface,
    job,
    json_output,
    op,
    slots,
)

X = np.random.default_rng(0).standard_normal((150, 3)).astype(np.float32)
LABEL = X.argmax(axis=1)


def evaluation(
    folder: Path, arrays: dict[str, Any], *metrics: MeasuredMetric, code: str = ""
) -> Job[EvaluateStage]:
    write_arrays(folder / "test.npz", arrays)
    (folder / "metric.py").write_text(code)
    graph = classifier()
    graph = Graph([*graph.nodes, op("z", "Neg", "y")])
    stored = {
        "graph": graph,
        "interface": interface("y", "z"),
        "assets": assets(folder),
    }
    stage = EvaluateStage(
        data=files(folder / "test.npz", "data/test.npz"),
        metrics=metrics,
        functions={"metric m.py": files(folder / "metric.py", "m.py")},
        engine=NUMPY,
        **slots(*stored),
    )
    return job(folder, stage, **stored)


def test_each_metric_has_its_own_output_and_labels(tmp_path: Path) -> None:
    done = evaluation(
        tmp_path,
        {"x": X, "label": LABEL, "target": -X - 1},
        MeasuredMetric(metric="top1"),
        MeasuredMetric(metric="mean_squared_error", outputs=("z:0",), labels="target"),
        MeasuredMetric(metric="agreement", labels=None),
        MeasuredMetric(metric="score", python="metric m.py", outputs=()),
        code="def score(outputs, labels):\n    return len(outputs['z']) + len(labels)\n",
    )
    run(done)
    top1, error, agreement, own = json_output(done, "evaluation.json")["metrics"]
    assert top1 == {"metric": "top1", "outputs": ["y"], "value": 1.0, "classes": 3}
    assert (error["outputs"], error["value"]) == (["z"], pytest.approx(1, abs=1e-6))
    assert agreement == {"metric": "agreement", "outputs": [], "value": None, "classes": None}
    assert own == {"metric": "score", "outputs": ["y"], "value": 300.0, "classes": None}


@pytest.mark.parametrize(
    ("arrays", "metric", "warned"),
    [
        ({"x": X, "label": LABEL}, "top1", False),
        ({"x": X}, "agreement", True),
        ({"x": X, "weights": X}, "agreement", True),
    ],
)
def test_default_metric_depends_on_labels(
    tmp_path: Path, arrays: dict[str, Any], metric: str, warned: bool
) -> None:
    done = evaluation(tmp_path, arrays, MeasuredMetric(metric="auto", labels_needed=False))
    run(done)
    record = json_output(done, "evaluation.json")
    assert [m["metric"] for m in record["metrics"]] == [metric]
    assert ["without labels" in warning for warning in record["warnings"]] == [True] * warned


def test_misspelled_labels_are_refused(tmp_path: Path) -> None:
    automatic = MeasuredMetric(metric="auto", labels_needed=False)
    with pytest.raises(AccuracyError, match="no array 'label'; it has labels, x") as caught:
        run(evaluation(tmp_path, {"x": X, "labels": LABEL}, automatic))
    assert caught.value.hint == "did you mean 'labels'?"


def test_unknown_output_suggests_the_nearest_name(tmp_path: Path) -> None:
    metric = MeasuredMetric(metric="top1", outputs=("zz",), place="recipe.yaml:7:7")
    with pytest.raises(AccuracyError, match="the model has no output 'zz'; it has y, z") as caught:
        run(evaluation(tmp_path, {"x": X, "label": LABEL}, metric))
    assert (caught.value.hint, caught.value.where) == ("did you mean 'z'?", "recipe.yaml:7:7")


def test_labels_of_a_function_may_be_none(tmp_path: Path) -> None:
    metric = MeasuredMetric(metric="score", python="metric m.py", labels_needed=False)
    code = "def score(outputs, labels):\n    return labels is None\n"
    done = evaluation(tmp_path, {"x": X}, metric, code=code)
    run(done)
    assert json_output(done, "evaluation.json")["metrics"][0]["value"] == 1.0


def test_error_of_a_function_is_reported_with_its_line(tmp_path: Path) -> None:
    metric = MeasuredMetric(metric="score", python="metric m.py")
    code = "def score(outputs, labels):\n    return outputs['gone']\n"
    with pytest.raises(AccuracyError, match="KeyError: 'gone'") as caught:
        run(evaluation(tmp_path, {"x": X, "label": LABEL}, metric, code=code))
    assert caught.value.where == f"{tmp_path / 'metric.py'}:2"


def test_samples_are_numbered_across_batches(tmp_path: Path) -> None:
    label = LABEL.copy()
    label[140] = 9
    with pytest.raises(AccuracyError, match="the first is 9, of sample 140"):
        run(evaluation(tmp_path, {"x": X, "label": label}, MeasuredMetric(metric="top1")))
