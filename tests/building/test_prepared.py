"""Builds prepared and run, and what is told of them beforehand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mobileprep.building import targets
from mobileprep.building.builder import prepared, run_build
from mobileprep.building.pipeline.file_index import FileIndex
from mobileprep.building.pipeline.state import State
from mobileprep.building.verdicts import Verdict, verdicts
from mobileprep.errors import UsageError
from mobileprep.graph.files import write_graph
from mobileprep.recipe.load import load_recipe
from tests.building.stages.jobs import classifier

TEXT = """
version: 1
name: r
source: {frozen: model.pb}
inputs: {x: {}}
outputs: [y]
targets:
  phone: {transforms: [remove_device]}
  tight: {transforms: [remove_device], budget: {model_bytes: BYTES}}
"""
OUT = Path("out")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    write_graph(Path("model.pb"), classifier())
    write_recipe(most=10_000)


def write_recipe(most: int) -> None:
    Path("recipe.yaml").write_text(TEXT.replace("BYTES", str(most)))


def state(**options: bool) -> State:
    return prepared([load_recipe("recipe.yaml")], OUT, **options)


def found(**options: bool) -> dict[str, Verdict]:
    return {verdict.task: verdict for verdict in verdicts(state(**options), OUT)}


def build(**options: bool) -> list[str]:
    run = run_build(state(), OUT, jobs=1, **options)
    return [str(failure) for failure in run.failures]


def test_a_first_build_runs_all_and_only_its_first_stage_is_certain() -> None:
    told = found()
    assert [v.fresh for v in told.values()] == [False] * len(told)
    assert told["r/freeze"].certain
    assert told["r/freeze"].reasons == ("it has not run before",)
    assert told["r/freeze"].seconds is None
    assert not told["r/01-remove_device"].certain
    folder = told["r/phone/publish"]
    assert (folder.stage, folder.reasons) == ("publish", ("r/freeze runs first",))
    assert not folder.certain
    assert [o.path for o in folder.outputs] == [f"out/r/phone/{o.name}" for o in folder.outputs]
    assert {o.sha256 for o in folder.outputs} == {None}


def test_after_a_build_all_is_fresh_and_known() -> None:
    assert build() == []
    told = found()
    assert [v.task for v in told.values() if not v.fresh] == []
    assert all(v.certain for v in told.values())
    freeze = told["r/freeze"]
    (source,) = freeze.inputs
    assert (source.slot, source.name) == ("graph", "model.pb")
    assert freeze.seconds is not None
    assert freeze.bytes is not None
    assert str(freeze) == "r/freeze: fresh"
    assert all(output.sha256 for verdict in told.values() for output in verdict.outputs)
    json.dumps([v.as_data() for v in told.values()])
    assert freeze.as_data()["fresh"] is True


def test_a_build_is_not_forced_unless_it_is_asked_for() -> None:
    build()
    assert found(force=True)["r/freeze"].reasons == ("--force was given",)
    assert found(force=False)["r/freeze"].fresh


def test_lost_output_of_an_incomplete_directory_is_rebuilt() -> None:
    build()
    shutil.rmtree("store/v2/cas")
    assert [t for t, v in found().items() if not v.fresh] == []
    Path("out/r/phone/r.pb").unlink()
    told = found()
    stale = [task for task, verdict in told.items() if not verdict.fresh]
    assert "r/phone/package" in stale
    assert "r/phone/publish" in stale
    assert told["r/phone/package"].certain


def test_a_failure_ends_a_build_unless_it_is_to_go_on() -> None:
    write_recipe(most=1)
    with pytest.raises(Exception, match="over the budget of 1"):
        build()
    (failure,) = build(keep_going=True)
    assert "over the budget of 1" in failure
    assert Path("out/r/phone/r.pb").is_file()
    assert not Path("out/r/tight").exists()


def test_a_target_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="no recipe has a target 'fone'") as caught:
        prepared([load_recipe("recipe.yaml")], OUT, targets=["fone"])
    assert "'phone'" in caught.value.hint


def test_files_are_hashed_again_only_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []

    class Index(FileIndex):
        def __init__(self, path: Path, *, checksum: bool = False) -> None:
            asked.append(checksum)
            super().__init__(path, checksum=checksum)

    monkeypatch.setattr(targets, "FileIndex", Index)
    state()
    state(checksum=True)
    assert asked == [False, True]
