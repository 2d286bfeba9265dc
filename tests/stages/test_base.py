"""Jobs and the registry of stages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mobileprep.errors import ArtifactError, InternalError
from mobileprep.plan.spec import STAGE_VERSIONS
from mobileprep.stages.base import stage_function
from mobileprep.stages.interface import Interface, read_interface, write_interface
from tests.stages.jobs import job, left


@pytest.mark.parametrize("name", STAGE_VERSIONS)
def test_every_stage_that_plans_name_exists(name: str) -> None:
    assert callable(stage_function(name))


def test_a_module_without_its_stage_is_our_own_fault() -> None:
    with pytest.raises(InternalError, match="registers no stage 'interface'"):
        stage_function("interface")


def test_only_the_stage_asked_for_is_imported() -> None:
    for name in STAGE_VERSIONS:
        stage_function(name)
        assert f"mobileprep.stages.{name}" in sys.modules


def test_json_is_sorted_and_finite(tmp_path: Path) -> None:
    made = job(tmp_path, {})
    made.write_json("facts.json", {"b": 1, "a": [1.5]})
    assert (made.folder / "facts.json").read_text() == '{\n "a": [\n  1.5\n ],\n "b": 1\n}\n'
    with pytest.raises(ValueError, match="not JSON compliant"):
        made.write_json("facts.json", {"a": float("nan")})


def test_outputs_stay_in_the_folder(tmp_path: Path) -> None:
    made = job(tmp_path, {})
    assert made.output("files/a") == (tmp_path / "work" / "files" / "a").resolve()
    with pytest.raises(ArtifactError, match="leads out"):
        made.output("../a")


def test_places_fall_back_on_the_task(tmp_path: Path) -> None:
    made = job(tmp_path, {})
    assert made.place("outputs") == "recipe.yaml:5:1"
    assert made.place("unknown") == "r/task"


def test_an_interface_comes_back(tmp_path: Path) -> None:
    told = Interface(("x",), ("y", "z:1"), ("init",))
    assert told.kept == ("y", "z:1", "init")
    writer = job(tmp_path, {})
    write_interface(writer, told)
    reader = job(tmp_path, {}, inputs={"interface": left(writer, "interface.json")})
    assert read_interface(reader) == told
