"""Plans of damage stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import Upstream
from mobileprep.building.stages.damage.spec import DamageRecord, DamageStage
from mobileprep.recipe.load import load_recipe

HEAD = """
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {}}
outputs: [y]
transforms: [strip_unused_nodes]
"""
NODES = "targets: {a: {quantize: {mode: nodes}}}\n"
WEIGHTS = "targets: {a: {quantize: weights}}\n"
VALIDATION = "validation: {data: test.npz, labels: kind}\n"
CALIBRATION = "calibration: {data: calibration.npz}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("model.pb", "test.npz", "calibration.npz", "ranges.yaml"):
        (tmp_path / name).write_text(name)
    return tmp_path


def damage_stages(text: str) -> list[DamageStage]:
    Path("recipe.yaml").write_text(HEAD + text)
    plan = plan_recipes([load_recipe(Path("recipe.yaml"), environ={})])
    (target,) = plan.targets
    specs = [s for s in plan.stages if isinstance(s.stage, DamageStage)]
    assert all(spec.task in target.tasks for spec in specs)
    assert target.upstreams(DamageRecord) == [Upstream(s.task, DamageStage.RECORD) for s in specs]
    return [s.stage for s in specs if isinstance(s.stage, DamageStage)]


def test_quantized_nodes_are_compared_if_data_exists() -> None:
    (stage,) = damage_stages(VALIDATION + CALIBRATION + NODES)
    assert (stage.data.name, stage.labels, stage.count) == ("test.npz", "kind", 16)
    assert stage.graph == Upstream("r/01-strip_unused_nodes", "graph.pb")
    assert stage.quantized == Upstream("r/02-quantize_nodes", "graph.pb")
    (stage,) = damage_stages(CALIBRATION + NODES)
    assert stage.data.name == "calibration.npz"


@pytest.mark.parametrize(
    "text",
    [
        NODES,
        VALIDATION + WEIGHTS,
        VALIDATION + "targets: {a: {}}\n",
        VALIDATION + "quantization_report: true\ntargets: {a: {}}\n",
        VALIDATION + "quantization_report: false\n" + NODES,
        "quantization_report: true\n" + WEIGHTS,
    ],
)
def test_other_targets_are_not_compared(text: str) -> None:
    assert damage_stages(text) == []


def test_weights_are_compared_on_request() -> None:
    (stage,) = damage_stages(VALIDATION + "quantization_report: true\n" + WEIGHTS)
    assert stage.quantized == Upstream("r/02-quantize_weights", "graph.pb")


def test_first_step_is_compared_with_the_source() -> None:
    (stage,) = damage_stages(
        VALIDATION + "targets: {a: {transforms: null, quantize: {mode: nodes}}}\n"
    )
    assert stage.graph == Upstream("r/freeze", "graph.pb")


def test_several_steps_are_compared_as_a_whole() -> None:
    steps = "transforms: [fold_constants, round_weights, remove_no_ops, quantize_weights]"
    text = f"quantization_report: true\ntargets: {{a: {{{steps}}}}}\n"
    (stage,) = damage_stages(VALIDATION + text)
    assert stage.graph == Upstream("r/01-fold_constants", "graph.pb")
    assert stage.quantized == Upstream("r/04-quantize_weights", "graph.pb")


def test_range_file_replaces_missing_data(folder: Path) -> None:
    (folder / "calibration.npz").unlink()
    text = "calibration: {data: calibration.npz, range_file: ranges.yaml}\n"
    quantize = "targets: {a: {quantize: {mode: nodes, ranges: observed}}}\n"
    assert damage_stages(text + quantize) == []
