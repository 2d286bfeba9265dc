"""The stages of ``quantize: auto``."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import Plan, Upstream
from mobileprep.building.stages.evaluate.spec import EvaluateStage
from mobileprep.building.stages.search.spec import ChoiceStage, RankStage, TrialStage, VerdictStage
from mobileprep.building.stages.transform.spec import TransformRecord
from mobileprep.recipe.load import load_recipe

HEAD = """\
version: 1
name: r
source: {frozen: m.pb}
calibration: {data: d.npz}
validation: {data: d.npz}
targets: {p: {quantize: %s}}
"""


@pytest.fixture(autouse=True)
def _files(tmp_path: Path) -> None:
    for name in ("m.pb", "d.npz"):
        (tmp_path / name).write_bytes(b"")


def planned(folder: Path, quantize: str = "{mode: auto, trials: 3}") -> Plan:
    return plan_recipes([load_recipe(folder / "r.yaml", text=HEAD % quantize, environ={})])


def test_trials_are_sequential_and_use_the_final_metrics(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    label = "r/01-quantize_nodes"
    tries = None
    for number in (1, 2, 3):
        trial = plan.stage(f"{label}-trial-{number}").stage
        evaluation = plan.stage(f"{label}-evaluate-{number}").stage
        verdict = plan.stage(f"{label}-verdict-{number}").stage
        assert isinstance(trial, TrialStage)
        assert isinstance(evaluation, EvaluateStage)
        assert isinstance(verdict, VerdictStage)
        assert trial.tries == verdict.tries == tries
        ranking = None if number == 1 else Upstream(f"{label}-rank", RankStage.RECORD)
        assert trial.ranking == ranking
        assert evaluation.graph == Upstream(f"{label}-trial-{number}", "graph.pb")
        shipped = plan.stage("r/p/evaluate").stage
        assert isinstance(shipped, EvaluateStage)
        assert evaluation.metrics == shipped.metrics
        assert verdict.before == Upstream("r/evaluate-source", EvaluateStage.RECORD)
        tries = Upstream(f"{label}-verdict-{number}", VerdictStage.RECORD)
    choice = plan.stage(label).stage
    assert isinstance(choice, ChoiceStage)
    assert choice.tries == tries
    assert plan.targets[0].upstreams(TransformRecord) == [Upstream(label, ChoiceStage.RECORD)]
    assert {spec.task for spec in plan.stages} == set(plan.targets[0].tasks)
    assert plan.targets[0].settings["transforms"][0]["trials"] == 3


def test_stages_follow_their_dependencies(tmp_path: Path) -> None:
    seen: set[str] = set()
    for spec in planned(tmp_path, "auto").stages:
        assert seen.issuperset(spec.needs)
        seen.add(spec.task)
    assert "r/01-quantize_nodes-verdict-16" in seen


def test_parameters_of_trials_do_not_contain_their_number(
    tmp_path: Path,
) -> None:
    plan = planned(tmp_path)
    second, third = (plan.stage(f"r/01-quantize_nodes-trial-{n}").stage for n in (2, 3))
    assert second.parameters == third.parameters
