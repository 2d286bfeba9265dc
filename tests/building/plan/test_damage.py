"""Which stage compares tensors before and after a target quantizes."""

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


def planned(text: str) -> list[DamageStage]:
    Path("recipe.yaml").write_text(HEAD + text)
    plan = plan_recipes([load_recipe(Path("recipe.yaml"), environ={})])
    (target,) = plan.targets
    found = [s for s in plan.stages if isinstance(s.stage, DamageStage)]
    assert all(spec.task in target.tasks for spec in found)
    assert target.upstreams(DamageRecord) == [Upstream(s.task, DamageStage.RECORD) for s in found]
    return [s.stage for s in found if isinstance(s.stage, DamageStage)]


def test_nodes_are_looked_at_where_there_is_data() -> None:
    (stage,) = planned(VALIDATION + CALIBRATION + NODES)
    assert (stage.data.name, stage.labels, stage.count) == ("test.npz", "kind", 16)
    assert stage.graph == Upstream("r/01-strip_unused_nodes", "graph.pb")
    assert stage.quantized == Upstream("r/02-quantize_nodes", "graph.pb")
    (stage,) = planned(CALIBRATION + NODES)
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
def test_nothing_else_is(text: str) -> None:
    assert planned(text) == []


def test_weights_are_where_it_is_asked_for() -> None:
    (stage,) = planned(VALIDATION + "quantization_report: true\n" + WEIGHTS)
    assert stage.quantized == Upstream("r/02-quantize_weights", "graph.pb")


def test_a_chain_that_begins_with_it_is_compared_with_the_source() -> None:
    (stage,) = planned(VALIDATION + "targets: {a: {transforms: null, quantize: {mode: nodes}}}\n")
    assert stage.graph == Upstream("r/freeze", "graph.pb")


def test_of_several_steps_it_is_from_before_the_first_to_after_the_last() -> None:
    steps = "transforms: [fold_constants, round_weights, remove_no_ops, quantize_weights]"
    text = f"quantization_report: true\ntargets: {{a: {{{steps}}}}}\n"
    (stage,) = planned(VALIDATION + text)
    assert stage.graph == Upstream("r/01-fold_constants", "graph.pb")
    assert stage.quantized == Upstream("r/04-quantize_weights", "graph.pb")


def test_a_range_file_does_without_the_data(folder: Path) -> None:
    (folder / "calibration.npz").unlink()
    text = "calibration: {data: calibration.npz, range_file: ranges.yaml}\n"
    quantize = "targets: {a: {quantize: {mode: nodes, ranges: observed}}}\n"
    assert planned(text + quantize) == []
