"""Plans of layers stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import Plan, Upstream
from mobileprep.building.stages.calibrate.spec import CalibrateStage, CalibrationRecord
from mobileprep.building.stages.layers.spec import LayersRecord, LayersStage
from mobileprep.recipe.load import load_recipe
from tests.building.plan.test_damage import CALIBRATION, HEAD, VALIDATION

REPAIR = "mode: int8, repair: [equalize_ranges, clip_weights]"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("model.pb", "test.npz", "calibration.npz"):
        (tmp_path / name).write_text(name)
    return tmp_path


def planned(quantize: str, more: str = "", head: str = CALIBRATION) -> Plan:
    report = "quantization_report: true\n" if "quantization_report" not in head else ""
    target = f"targets: {{a: {{artifact: tflite, quantize: {{{quantize}}}{more}}}}}\n"
    Path("recipe.yaml").write_text(HEAD + head + report + target)
    return plan_recipes([load_recipe(Path("recipe.yaml"), environ={})])


def layers_stage(plan: Plan) -> LayersStage:
    (spec,) = [spec for spec in plan.stages if isinstance(spec.stage, LayersStage)]
    (target,) = plan.targets
    assert spec.task in target.tasks
    assert target.upstreams(LayersRecord) == [Upstream(spec.task, "layers.json")]
    assert isinstance(spec.stage, LayersStage)
    return spec.stage


def graphs(stage: LayersStage) -> list[str]:
    assert {upstream.output for upstream in stage.graphs} == {"graph.pb"}
    return [upstream.task for upstream in stage.graphs]


def test_each_repair_has_a_graph_and_ranges() -> None:
    plan = planned(REPAIR)
    stage = layers_stage(plan)
    assert stage.repairs == ("equalize_ranges", "clip_weights")
    names = ["01-strip_unused_nodes", "02-equalize_ranges", "03-clip_weights"]
    assert graphs(stage) == [f"r/{name}" for name in names]
    calibrated = {
        spec.task: spec.stage.graph.task
        for spec in plan.stages
        if isinstance(spec.stage, CalibrateStage)
    }
    assert [calibrated[upstream.task] for upstream in stage.ranges] == graphs(stage)
    # The last calibration is that of the file; only it is reported.
    (target,) = plan.targets
    assert target.upstreams(CalibrationRecord) == [
        Upstream(stage.ranges[-1].task, "calibration.json")
    ]
    assert (stage.data.name, stage.count) == ("calibration.npz", 4)


def test_steps_after_repairs_belong_to_the_file() -> None:
    stage = layers_stage(planned(REPAIR, ", sort: true, obfuscate: true", VALIDATION + CALIBRATION))
    assert graphs(stage)[-1] == "r/03-clip_weights"
    assert stage.data.name == "test.npz"


@pytest.mark.parametrize("mode", ["weights", "int4"])
def test_weights_need_no_ranges(mode: str) -> None:
    stage = layers_stage(planned(f"mode: {mode}"))
    assert (stage.repairs, graphs(stage), stage.ranges) == ((), ["r/01-strip_unused_nodes"], ())


def test_range_file_fits_only_the_file(folder: Path) -> None:
    (folder / "ranges.yaml").write_text("")
    head = "calibration: {range_file: ranges.yaml, data: calibration.npz}\n"
    stage = layers_stage(planned(REPAIR, head=head))
    assert (stage.repairs, graphs(stage), len(stage.ranges)) == ((), ["r/03-clip_weights"], 1)


@pytest.mark.parametrize(
    ("quantize", "head"),
    [
        (REPAIR, CALIBRATION + "quantization_report: false\n"),
        ("mode: float16", CALIBRATION),
        ("mode: none", CALIBRATION),
        ("mode: weights", ""),
    ],
)
def test_other_targets_are_not_measured(quantize: str, head: str) -> None:
    plan = planned(quantize, head=head)
    assert not any(isinstance(spec.stage, LayersStage) for spec in plan.stages)


def test_default_is_off() -> None:
    Path("recipe.yaml").write_text(
        HEAD + CALIBRATION + "targets: {a: {artifact: tflite, quantize: int8}}\n"
    )
    plan = plan_recipes([load_recipe(Path("recipe.yaml"), environ={})])
    assert not any(isinstance(spec.stage, LayersStage) for spec in plan.stages)
