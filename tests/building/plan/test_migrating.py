"""Plans of migration stages."""

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
REPORT = "migration_report: true\n"
STEPS = "transforms: [strip_unused_nodes, quantize_weights, sort_by_execution_order]\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.pb").write_text("model")


def migration_stages(text: str) -> list[StageSpec]:
    Path("recipe.yaml").write_text(HEAD + text)
    plan = plan_recipes([load_recipe(Path("recipe.yaml"), environ={})])
    specs = [s for s in plan.stages if isinstance(s.stage, MigrationStage)]
    records = [up for t in plan.targets for up in t.upstreams(MigrationRecord)]
    assert records == [Upstream(s.task, MigrationStage.RECORD) for s in specs]
    assert {s.task for s in specs} <= {task for t in plan.targets for task in t.tasks}
    inputs = {up.task for s in plan.stages for up in s.stage.upstream.values()}
    assert not inputs & {s.task for s in specs}
    return specs


@pytest.mark.parametrize(
    "text",
    [
        "targets: {a: {}}",
        REPORT + "targets: {a: {migration_report: false}}",
        REPORT + "targets: {a: {artifact: tflite}}",
    ],
)
def test_no_stage_unless_requested(text: str) -> None:
    assert migration_stages(text) == []


def test_stage_uses_the_shipped_graph() -> None:
    (spec,) = migration_stages(
        REPORT + "transforms: [strip_unused_nodes]\ntargets: {a: {platform: android}}"
    )
    stage = spec.stage
    assert isinstance(stage, MigrationStage)
    assert spec.task == "r/a/migration"
    assert (stage.platform, stage.before) == ("android", "")
    assert stage.graph == Upstream("r/01-strip_unused_nodes", "graph.pb")


def test_stage_uses_the_graph_before_quantization() -> None:
    (spec,) = migration_stages(STEPS + "targets: {a: {migration_report: true}, b: {}}")
    stage = spec.stage
    assert isinstance(stage, MigrationStage)
    assert stage.before == "quantize_weights"
    assert stage.graph == Upstream("r/01-strip_unused_nodes", "graph.pb")


def test_stage_uses_the_source_if_the_first_step_quantizes() -> None:
    (spec,) = migration_stages(REPORT + "transforms: [quantize_weights]\ntargets: {a: {}}")
    assert spec.stage.upstream["graph"] == Upstream("r/freeze", "graph.pb")
