"""Jobs and the registry of stages."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from mobileprep.building.plan.engines import EngineRecord
from mobileprep.building.plan.spec import Stage
from mobileprep.building.stages.base import stage_function
from mobileprep.building.stages.check.spec import CheckStage
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.errors import ArtifactError, InternalError
from tests.building.stages.jobs import NUMPY, job, json_output, slots
from tests.building.stages.kinds import STAGES

STAGE = CheckStage(
    step="s", engine=NUMPY, **slots("graph", "interface", "assets", "samples", "expected")
)


@pytest.mark.parametrize("kind", STAGES)
def test_every_stage_has_a_function(kind: type[Stage]) -> None:
    assert callable(stage_function(kind))


class _UnknownStage(CheckStage, frozen=True, kw_only=True):
    stage_name: ClassVar[str] = "unknown"


def test_unregistered_stage_is_an_internal_error() -> None:
    _UnknownStage.__module__ = CheckStage.__module__
    with pytest.raises(InternalError, match="has no function for the stage 'unknown'"):
        stage_function(_UnknownStage)


def test_json_is_sorted_and_finite(tmp_path: Path) -> None:
    check_job = job(tmp_path, STAGE)
    check_job.write_record("interface.json", Interface(("x",), ()))
    text = '{\n "init_ops": [],\n "inputs": [\n  "x"\n ],\n "outputs": []\n}\n'
    assert (check_job.folder / "interface.json").read_text() == text
    with pytest.raises(ValueError, match="not JSON compliant"):
        check_job.write_record("engine.json", EngineRecord("numpy", float("nan")))


def test_outputs_outside_of_the_directory_are_refused(tmp_path: Path) -> None:
    check_job = job(tmp_path, STAGE)
    assert check_job.output("files/a") == (tmp_path / "work" / "files" / "a").resolve()
    with pytest.raises(ArtifactError, match="leads out"):
        check_job.output("../a")


def test_location_defaults_to_the_task(tmp_path: Path) -> None:
    check_job = job(tmp_path, STAGE)
    assert check_job.place("outputs") == "recipe.yaml:5:1"
    assert check_job.place("artifact") == "r/task"


def test_interface_round_trip(tmp_path: Path) -> None:
    model_interface = Interface(("x",), ("y", "z:1"), ("init",))
    assert model_interface.retained == ("y", "z:1", "init")
    writer = job(tmp_path, STAGE)
    writer.write_record("interface.json", model_interface)
    reader = job(tmp_path, STAGE, interface=json_output(writer, "interface.json"))
    assert reader.record(Interface, STAGE.interface) == model_interface
