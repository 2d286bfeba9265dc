"""From recipes to states of plans, and from built targets to folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.building.pipeline.execute import Executor
from mobileprep.building.pipeline.runner import build, collect_target
from mobileprep.building.pipeline.state import State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.targets import (
    REPORT,
    build_report,
    plan_state,
    publish_target,
    target_changes,
)
from mobileprep.core.files import sha256_file
from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.graph.files import write_graph
from mobileprep.recipe.load import load_recipe
from tests.building.stages.jobs import classifier

TEXT = """
version: 1
name: r
source: {frozen: model.pb, sha256: {model.pb: SHA}}
inputs: {x: {}}
outputs: [y]
targets:
  phone: {}
  tight: {budget: {model_bytes: 9000}}
"""
OUT = Path("out")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_graph(Path("model.pb"), classifier())
    Path("recipe.yaml").write_text(TEXT.replace("SHA", sha256_file(Path("model.pb"))))


def state(*targets: str) -> State:
    return plan_state([load_recipe("recipe.yaml")], targets, store=Store(Path("store")))


def executor(state: State) -> Executor:
    executor = Executor(state)
    build(executor)
    return executor


def test_targets_are_named_by_themselves_or_their_folders_and_all_without_any() -> None:
    assert [t.folder for t in state().plan.targets] == ["r/phone", "r/tight"]
    assert [t.folder for t in state("tight").plan.targets] == ["r/tight"]
    for name, hint in (("fone", "did you mean 'phone'?"), ("zzz", "there are phone, tight")):
        with pytest.raises(UsageError, match=f"no recipe has a target '{name}'") as caught:
            state(name)
        assert caught.value.hint == hint


def test_source_with_another_digest_is_refused() -> None:
    state()
    write_graph(Path("model.pb"), classifier(scale=2))
    with pytest.raises(CorruptFileError, match="and the recipe pins") as caught:
        state()
    assert "model.pb has the sha256 " in caught.value.message


def test_a_folder_is_published_once_with_its_report() -> None:
    run = executor(state())
    phone = run.state.plan.targets[0]
    report, is_changed = publish_target(phone, run, OUT)
    assert is_changed
    assert report.model.file == "r.pb"
    assert json.loads((OUT / "r/phone" / REPORT).read_text())["target"] == "phone"
    assert publish_target(phone, run, OUT) == (report, False)


def test_missing_outputs_are_listed_before_publishing() -> None:
    run = executor(state())
    built = collect_target(run.state.plan.targets[0], run.state)
    todo, extra = target_changes(built, OUT, run.state.store.files)
    assert set(todo.write) == {*built.files, REPORT, "manifest.json"}
    assert list(extra) == [REPORT]
    assert build_report(built).target == "phone"
    publish_target(run.state.plan.targets[0], run, OUT)
    assert not target_changes(built, OUT, run.state.store.files)[0]


def test_new_files_make_a_folder_s_provenance_untrue() -> None:
    run = executor(state())
    phone = run.state.plan.targets[0]
    publish_target(phone, run, OUT)
    statement = OUT / "r/phone.provenance.json"
    statement.write_text("{}")
    publish_target(phone, run, OUT)
    before = statement.exists()
    (OUT / "r/phone/r.pb").unlink()
    publish_target(phone, run, OUT)
    assert (before, statement.exists()) == (True, False)
