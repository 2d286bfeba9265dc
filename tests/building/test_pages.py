"""The page that a build leaves for each recipe."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mobileprep.building.builder import build, prepared
from mobileprep.building.pages import remove_page, write_pages
from mobileprep.building.pipeline.execute import Executor, Ran
from mobileprep.building.pipeline.locks import folder_locks
from mobileprep.building.report.collect import Report
from mobileprep.building.targets import publish_target
from mobileprep.building.verdicts import PUBLISH, WRITE_PAGE, Verdict, verdicts
from mobileprep.errors import MobileprepError
from mobileprep.recipe.load import load_recipe
from tests.building.report.page.browser import built


def nobody(sentence: str) -> None:
    """Tells nothing."""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    return built(tmp_path)


def again(page: Path, **options: Any) -> list[str]:
    told: list[str] = []
    recipe = page.parents[2] / "recipe.yaml"
    build(recipe, page.parents[1], warn=told.append, **options)
    return told


def held(page: Path) -> Any:
    found = re.search(rb'id="data">([^<]*)<', page.read_bytes())
    assert found is not None
    return json.loads(found[1])


def without_times(page: Path) -> Any:
    data = held(page)
    del data["stages"]
    return data


def test_page_lists_targets_and_stages(page: Path) -> None:
    data = held(page)
    assert [target["name"] for target in data["targets"]] == ["phone", "web"]
    assert all(stage["ran"] for stage in data["stages"])
    steps = [step["name"] for step in data["targets"][0]["nodes"]["steps"]]
    assert steps == [step["name"] for step in data["targets"][0]["report"]["steps"]]
    assert steps[:2] == ["strip_unused_nodes", "remove_nodes"]


def test_a_build_with_nothing_to_do_leaves_it_alone(page: Path) -> None:
    before = page.stat()
    assert again(page) == []
    after = page.stat()
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)


def test_only_durations_differ_after_a_forced_build(page: Path) -> None:
    before = without_times(page)
    again(page, force=True)
    assert without_times(page) == before


def test_cached_stages_are_marked(page: Path) -> None:
    recipe = page.parents[2] / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("model_bytes: 1 MB", "model_bytes: 2 MB"))
    again(page)
    ran = {stage["task"] for stage in held(page)["stages"] if stage["ran"]}
    assert ran == {"shown/phone/budget"}


def test_a_page_that_is_gone_is_written_again(page: Path) -> None:
    before = without_times(page)
    page.unlink()
    again(page)
    assert without_times(page) == before
    assert not any(stage["ran"] for stage in held(page)["stages"])


def test_a_page_that_was_edited_is_written_again(page: Path) -> None:
    before = without_times(page)
    page.write_bytes(page.read_bytes()[:-100])
    again(page)
    assert without_times(page) == before


@pytest.mark.parametrize("kind", ["a folder", "a pipe", "a link to nothing"])
def test_special_file_does_not_block_the_build(page: Path, kind: str) -> None:
    page.unlink()
    if kind == "a link to nothing":
        page.symlink_to(page.parent / "nothing")
        assert again(page) == []
        assert not page.is_symlink()
        return
    page.mkdir() if kind == "a folder" else os.mkfifo(page)
    (warning,) = again(page)
    assert "is no page of a build" in warning


def test_it_is_of_the_targets_that_were_asked_for(page: Path) -> None:
    again(page, targets=["web"])
    assert [target["name"] for target in held(page)["targets"]] == ["web"]


def test_file_of_the_user_is_not_overwritten(page: Path) -> None:
    page.write_text("mine")
    (warning,) = again(page)
    assert "is no page of a build" in warning
    assert page.read_text() == "mine"
    assert not remove_page(page.parent, nobody)
    assert page.exists()


def test_a_build_that_fails_leaves_the_page_of_the_one_before(page: Path) -> None:
    before = page.read_bytes()
    recipe = page.parents[2] / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("model_bytes: 1 MB", "model_bytes: 1 B"))
    with pytest.raises(MobileprepError):
        again(page)
    assert page.read_bytes() == before


def append(page: Path) -> None:
    page.write_bytes(page.read_bytes() + b"<!-- mine -->")


def truncate(page: Path) -> None:
    page.write_bytes(page.read_bytes()[:-100])


def build_of_one_target(page: Path) -> None:
    again(page, targets=["web"])


def put_link(page: Path) -> None:
    page.unlink()
    page.symlink_to("nothing")


def put_folder(page: Path) -> None:
    page.unlink()
    page.mkdir()


SPOILS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "nothing": (Path.stat, ""),
    "removed": (Path.unlink, "is missing"),
    "appended to": (append, "was altered"),
    "truncated": (truncate, "was altered"),
    "of one target": (build_of_one_target, "is of another build"),
    "a link to nothing": (put_link, "is missing"),
    "of another": (lambda page: page.write_text("mine"), ""),
    "a folder": (put_folder, ""),
}


@pytest.mark.parametrize("how", SPOILS)
def test_page_prediction_matches_the_build(page: Path, how: str) -> None:
    spoil, reason = SPOILS[how]
    spoil(page)
    due = [told for told in foretold(page) if told.stage == WRITE_PAGE]
    assert [told.reasons for told in due] == ([(f"{page} {reason}",)] if reason else [])
    before = stamp(page)
    again(page)
    assert (stamp(page) != before) == bool(due)
    assert all(told.fresh for told in foretold(page))


def stamp(page: Path) -> tuple[int, int] | None:
    """What tells whether a page was written again."""
    found = page.lstat() if os.path.lexists(page) else None
    return None if found is None else (found.st_ino, found.st_mtime_ns)


def test_it_is_not_foretold_where_something_else_is_to_be_done(page: Path) -> None:
    append(page)
    (page.parent / "web" / "manifest.json").unlink()
    assert [told.stage for told in foretold(page) if not told.fresh] == [PUBLISH]


def foretold(page: Path) -> list[Verdict]:
    recipe = load_recipe(page.parents[2] / "recipe.yaml")
    return verdicts(prepared([recipe], page.parents[1]), page.parents[1])


@pytest.fixture
def run(page: Path) -> Executor:
    """What runs the plan of the recipe, all of which is fresh."""
    recipe = load_recipe(page.parents[2] / "recipe.yaml")
    state = prepared([recipe], page.parents[1])
    return Executor(state)


def reports_of(run: Executor, out: Path) -> dict[str, Report]:
    return {t.folder: publish_target(t, run, out)[0] for t in run.state.plan.targets}


def test_it_is_written_when_all_targets_are_published(page: Path, run: Executor) -> None:
    out, before = page.parents[1], held(page)
    page.unlink()
    assert write_pages(run, out, {}) == []
    assert not page.exists()
    assert write_pages(run, out, reports_of(run, out), ["shown"]) == []
    assert not page.exists()
    assert write_pages(run, out, reports_of(run, out)) == []
    assert without_times(page) == {k: v for k, v in before.items() if k != "stages"}


def test_stages_that_ran_are_listed(page: Path, run: Executor) -> None:
    run.ran.append(Ran("shown/phone/package", 0.25))
    assert write_pages(run, page.parents[1], reports_of(run, page.parents[1])) == []
    ran = {stage["task"]: stage["seconds"] for stage in held(page)["stages"] if stage["ran"]}
    assert ran == {"shown/phone/package": 0.25}


def test_it_is_removed_once(page: Path) -> None:
    assert remove_page(page.parent, nobody)
    assert not page.exists()
    assert not remove_page(page.parent, nobody)


@pytest.fixture
def half_written(page: Path) -> Path:
    path = page.with_name(f".{page.name}.0123456789abcdef")
    path.write_bytes(page.read_bytes()[:100])
    return path


@pytest.mark.parametrize("force", [True, False])
def test_partial_page_of_a_killed_build_is_removed(half_written: Path, *, force: bool) -> None:
    warnings = again(half_written.with_name("report.html"), force=force)
    assert not any("report.html" in warning for warning in warnings)
    assert not half_written.exists()


def test_page_is_removed_with_partial_files(half_written: Path) -> None:
    other = half_written.with_name(".notes.html.0123456789abcdef")
    other.touch()
    assert remove_page(half_written.parent, nobody)
    assert not half_written.exists()
    assert other.exists()


def test_a_build_of_other_targets_that_writes_it_is_waited_for(
    half_written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    with ExitStack() as other:

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            assert half_written.exists()
            other.close()

        other.enter_context(folder_locks([half_written.parent], wait=False, tell=pytest.fail))
        monkeypatch.setattr("time.sleep", pause)
        assert again(half_written.with_name("report.html"), jobs=1) == []
    assert len(pauses) == 1
    assert not half_written.exists()
