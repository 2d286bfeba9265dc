"""Jobs and the registry of stages."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from mobileprep.building.plan.engines import EngineRecord
from mobileprep.building.plan.planner import STAGES
from mobileprep.building.plan.spec import Stage
from mobileprep.building.stages.base import stage_function
from mobileprep.building.stages.check.spec import CheckStage
from mobileprep.building.stages.freeze.spec import Interface
from mobileprep.errors import ArtifactError, InternalError
from tests.building.stages.jobs import NUMPY, job, left, slots

ASKED = CheckStage(
    step="s", engine=NUMPY, **slots("graph", "interface", "assets", "samples", "expected")
)


@pytest.mark.parametrize("kind", STAGES)
def test_every_stage_has_a_function(kind: type[Stage]) -> None:
    assert callable(stage_function(kind))


class _UnknownStage(CheckStage, frozen=True, kw_only=True):
    stage_name: ClassVar[str] = "unknown"


def test_a_module_without_its_stage_is_an_internal_error() -> None:
    _UnknownStage.__module__ = CheckStage.__module__
    with pytest.raises(InternalError, match="registers no stage 'unknown'"):
        stage_function(_UnknownStage)


def test_json_is_sorted_and_finite(tmp_path: Path) -> None:
    made = job(tmp_path, ASKED)
    made.write_record("interface.json", Interface(("x",), ()))
    text = '{\n "init_ops": [],\n "inputs": [\n  "x"\n ],\n "outputs": []\n}\n'
    assert (made.folder / "interface.json").read_text() == text
    with pytest.raises(ValueError, match="not JSON compliant"):
        made.write_record("engine.json", EngineRecord("numpy", float("nan")))


def test_outputs_stay_in_the_folder(tmp_path: Path) -> None:
    made = job(tmp_path, ASKED)
    assert made.output("files/a") == (tmp_path / "work" / "files" / "a").resolve()
    with pytest.raises(ArtifactError, match="leads out"):
        made.output("../a")


def test_places_fall_back_on_the_task(tmp_path: Path) -> None:
    made = job(tmp_path, ASKED)
    assert made.place("outputs") == "recipe.yaml:5:1"
    assert made.place("artifact") == "r/task"


def test_an_interface_comes_back(tmp_path: Path) -> None:
    told = Interface(("x",), ("y", "z:1"), ("init",))
    assert told.retained == ("y", "z:1", "init")
    writer = job(tmp_path, ASKED)
    writer.write_record("interface.json", told)
    reader = job(tmp_path, ASKED, interface=left(writer, "interface.json"))
    assert reader.record(Interface, ASKED.interface) == told
