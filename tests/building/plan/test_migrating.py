"""Which stage tells which runtimes run a target's graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import StageSpec, Upstream
from mobileprep.building.stages.migration.spec import MigrationRecord, MigrationStage
from mobileprep.recipe.load import load_recipe

HEAD = """
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {}}
outputs: [y]
"""
ASKED = "migration_report: true\n"
STEPS = "transforms: [strip_unused_nodes, quantize_weights, sort_by_execution_order]\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.pb").write_text("model")


def planned(text: str) -> list[StageSpec]:
    Path("recipe.yaml").write_text(HEAD + text)
    plan = plan_recipes([load_recipe(Path("recipe.yaml"), environ={})])
    found = [s for s in plan.stages if isinstance(s.stage, MigrationStage)]
    records = [Upstream(s.task, MigrationStage.RECORD) for s in found]
    told = [up for t in plan.targets for up in t.upstreams(MigrationRecord)]
    assert told == records
    assert {s.task for s in found} <= {task for t in plan.targets for task in t.tasks}
    read = {up.task for s in plan.stages for up in s.stage.upstream.values()}
    assert not read & {s.task for s in found}
    return found


@pytest.mark.parametrize(
    "text",
    [
        "targets: {a: {}}",
        ASKED + "targets: {a: {migration_report: false}}",
        ASKED + "targets: {a: {artifact: tflite}}",
    ],
)
def test_there_is_none_where_nothing_asks(text: str) -> None:
    assert planned(text) == []


def test_it_tries_the_graph_that_ships() -> None:
    (spec,) = planned(ASKED + "transforms: [strip_unused_nodes]\ntargets: {a: {platform: android}}")
    stage = spec.stage
    assert isinstance(stage, MigrationStage)
    assert spec.task == "r/a/migration"
    assert (stage.platform, stage.before) == ("android", "")
    assert stage.graph == Upstream("r/01-strip_unused_nodes", "graph.pb")


def test_it_tries_the_graph_before_it_is_quantized() -> None:
    (spec,) = planned(STEPS + "targets: {a: {migration_report: true}, b: {}}")
    stage = spec.stage
    assert isinstance(stage, MigrationStage)
    assert stage.before == "quantize_weights"
    assert stage.graph == Upstream("r/01-strip_unused_nodes", "graph.pb")


def test_a_chain_that_begins_by_quantizing_has_the_source_tried() -> None:
    (spec,) = planned(ASKED + "transforms: [quantize_weights]\ntargets: {a: {}}")
    assert spec.stage.upstream["graph"] == Upstream("r/freeze", "graph.pb")
