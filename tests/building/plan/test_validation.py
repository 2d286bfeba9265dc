"""Parameters of the stages of ``validation``."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import Plan
from mobileprep.building.stages.evaluate.spec import EvaluateStage, MeasuredMetric
from mobileprep.building.stages.validate.spec import ValidateStage
from mobileprep.recipe.load import load_recipe

HEAD = "version: 1\nname: r\nsource: {frozen: m.pb}\ntargets: {p: {}}\n"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    for name in ("m.pb", "d.npz", "m.py"):
        (tmp_path / name).write_bytes(b"")


def planned(folder: Path, keys: str, data: str = "d.npz") -> Plan:
    text = f"{HEAD}validation: {{data: {data}, {keys}}}\n"
    return plan_recipes([load_recipe(folder / "recipe.yaml", text=text, environ={})])


def evaluate(plan: Plan) -> EvaluateStage:
    stage = plan.stage("r/evaluate-source").stage
    assert isinstance(stage, EvaluateStage)
    return stage


def validate(plan: Plan) -> ValidateStage:
    stage = plan.stage("r/p/validate").stage
    assert isinstance(stage, ValidateStage)
    return stage


@pytest.mark.parametrize(
    ("keys", "metric"),
    [
        ("metric: auto", MeasuredMetric(metric="auto", labels_needed=False)),
        ("labels: y", MeasuredMetric(metric="auto", labels="y")),
        ("metric: auc", MeasuredMetric(metric="auc")),
        ("metric: agreement", MeasuredMetric(metric="agreement", labels=None)),
        (
            'metric: word_error_rate, characters: "ab"',
            MeasuredMetric(metric="word_error_rate", characters=("a", "b")),
        ),
        (
            "metric: {python: m.py, function: f}, max_drop: 1",
            MeasuredMetric(metric="f", python="metric m.py", labels_needed=False),
        ),
    ],
)
def test_measured_metric(tmp_path: Path, keys: str, metric: MeasuredMetric) -> None:
    assert evaluate(planned(tmp_path, keys)).metrics == (metric,)


def test_labels_named_by_the_data_are_required(tmp_path: Path) -> None:
    metrics = evaluate(planned(tmp_path, "metric: auto", "{npz: d.npz, labels: y}")).metrics
    assert [metric.labels_needed for metric in metrics] == [True]


def test_limits_affect_only_the_comparison(tmp_path: Path) -> None:
    one, other = (planned(tmp_path, f"metric: r2, max_drop: {drop}") for drop in (0.1, 0.2))
    assert evaluate(one).parameters == evaluate(other).parameters
    assert validate(one).parameters != validate(other).parameters
    moved = planned(tmp_path, "metric:   r2, max_drop:   0.1")
    assert validate(moved).parameters == validate(one).parameters


def test_file_of_a_function_is_an_input_and_a_source(tmp_path: Path) -> None:
    keys = "metric: {python: m.py, function: f, higher_is_better: false}, at_most: 3"
    plan = planned(tmp_path, keys)
    assert [f.name for f in evaluate(plan).files["metric m.py"].members] == ["m.py"]
    assert "m.py" in {file.name for file in plan.targets[0].sources}
    (judged,) = validate(plan).metrics
    assert (judged.higher_is_better, judged.max_drop, judged.at_most) == (False, None, 3.0)
