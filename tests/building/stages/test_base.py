"""Jobs and the registry of stages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mobileprep.building.plan.records import EngineRecord, Interface
from mobileprep.building.plan.running_stages import CheckStage
from mobileprep.building.plan.stages import STAGES
from mobileprep.building.stages.base import stage_function
from mobileprep.errors import ArtifactError, InternalError
from tests.building.stages.jobs import NUMPY, job, left, slots

ASKED = CheckStage(
    step="s", engine=NUMPY, **slots("graph", "interface", "assets", "samples", "expected")
)
NAMES = [kind.stage_name for kind in STAGES]


@pytest.mark.parametrize("name", NAMES)
def test_every_stage_that_plans_name_exists(name: str) -> None:
    assert callable(stage_function(name))


def test_a_module_without_its_stage_is_our_own_fault() -> None:
    with pytest.raises(InternalError, match="registers no stage 'assets'"):
        stage_function("assets")


def test_only_the_stage_asked_for_is_imported() -> None:
    for name in NAMES:
        stage_function(name)
        assert f"mobileprep.building.stages.{name}" in sys.modules


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
    assert told.kept == ("y", "z:1", "init")
    writer = job(tmp_path, ASKED)
    writer.write_record("interface.json", told)
    reader = job(tmp_path, ASKED, interface=left(writer, "interface.json"))
    assert reader.record(Interface, ASKED.interface) == told
