"""Stages as doit tasks, and doit's runner for them."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest

from mobileprep.building.pipeline.doit_tasks import (
    guarded,
    plain_task,
    recipe_files,
    run_tasks,
    task_name,
)
from mobileprep.building.plan.spec import Stage, StageSpec, Upstream
from mobileprep.errors import CorruptFileError, TransformError


class JoinStage(Stage, frozen=True, kw_only=True):
    """Reads one or two others."""

    stage_name: ClassVar[str] = "join"

    first: Upstream | None = None
    second: Upstream | None = None


def spec(name: str, *needs: str) -> StageSpec:
    slots = zip(("first", "second"), needs, strict=False)
    return StageSpec(name, JoinStage(**{slot: Upstream(task, "out") for slot, task in slots}))


def tasks(done: list[str], fresh: set[str] = frozenset()) -> list[dict[str, Any]]:  # type: ignore[assignment]
    """A diamond, listed with its tip first."""
    specs = [spec("r/d", "r/b", "r/c"), spec("r/b", "r/a"), spec("r/c", "r/a"), spec("r/a")]
    return [
        plain_task(
            s.task, s.needs, lambda s=s: done.append(s.task), lambda *_, s=s: s.task in fresh
        )  # type: ignore[misc]
        for s in specs
    ]


@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_tasks_run_after_those_that_they_need(jobs: int) -> None:
    done: list[str] = []
    assert run_tasks(tasks(done), jobs=jobs)
    assert sorted(done) == ["r/a", "r/b", "r/c", "r/d"]
    assert (done[0], done[-1]) == ("r/a", "r/d")


@pytest.mark.parametrize(("jobs", "most"), [(1, 1), (2, 2)])
def test_as_many_tasks_run_at_once_as_there_are_jobs(jobs: int, most: int) -> None:
    running: set[str] = set()
    seen: list[int] = []
    both = threading.Barrier(most)

    def run(name: str) -> None:
        running.add(name)
        both.wait(timeout=20)
        seen.append(len(running))
        both.wait(timeout=20)
        running.remove(name)

    listed = [
        plain_task(name, [], lambda name=name: run(name), lambda *_: False)  # type: ignore[misc]
        for name in ("r/a", "r/b")
    ]
    assert run_tasks(listed, jobs=jobs)
    assert seen == [most, most]


def test_fresh_tasks_are_passed_over() -> None:
    done: list[str] = []
    assert run_tasks(tasks(done, {"r/a", "r/b"}), jobs=1)
    assert done == ["r/c", "r/d"]


@pytest.mark.parametrize("jobs", [1, 4])
@pytest.mark.parametrize("error", [TransformError("no", "hint", "there"), ZeroDivisionError("bug")])
def test_failure_stops_dependent_tasks(
    jobs: int, error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []
    failures: dict[str, BaseException] = {}

    def fail() -> None:
        raise error

    listed = [
        plain_task("r/a", [], guarded(fail, "r/a", failures), lambda *_: False),  # type: ignore[arg-type]
        plain_task("r/b", ["r/a"], lambda: done.append("r/b"), lambda *_: False),
    ]
    assert not run_tasks(listed, jobs=jobs)
    assert failures == {"r/a": error}
    assert failures["r/a"].__traceback__ is not None
    assert done == []
    told = capfd.readouterr()
    assert (told.out, told.err) == ("", "")


@pytest.mark.parametrize("jobs", [1, 4])
def test_an_error_of_the_check_is_raised_as_it_is(
    jobs: int, capfd: pytest.CaptureFixture[str]
) -> None:
    def check(*_: object) -> bool:
        raise CorruptFileError(*("is gone", "", "a.pb"))

    with pytest.raises(CorruptFileError, match=r"a\.pb: is gone"):
        run_tasks([plain_task("r/a", [], lambda: None, check)], jobs=jobs)  # type: ignore[arg-type]
    assert capfd.readouterr().err == ""


def test_doit_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_tasks(tasks([]), jobs=1)
    assert list(tmp_path.iterdir()) == []


def test_the_user_s_doit_settings_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "doit.cfg").write_text("[GLOBAL]\nreporter = json\nalways = True\n")
    (tmp_path / "dodo.py").write_text("raise SystemExit('not ours')\n")
    done: list[str] = []
    assert run_tasks(tasks(done, {"r/a"}), jobs=1)
    assert "r/a" not in done


@pytest.mark.parametrize("jobs", [1, 2])
def test_tasks_write_to_the_streams_that_are_there(jobs: int) -> None:
    before = sys.stdout, sys.stderr
    seen: list[object] = []
    listed = [
        plain_task(name, [], lambda: seen.append((sys.stdout, sys.stderr)), lambda *_: False)
        for name in ("r/a", "r/b")
    ]
    run_tasks(listed, jobs=jobs)
    assert seen == [before, before]
    assert (sys.stdout, sys.stderr) == before


def test_names_keep_clear_of_doit_s_variables() -> None:
    assert task_name("r/a=b") == "r/a_b"


def test_recipes_are_found_sorted(tmp_path: Path) -> None:
    for name in ("b", "a", "c/deeper"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "recipe.yaml").write_text("")
    (tmp_path / "recipe.yaml").write_text("")
    found = [p.relative_to(tmp_path).as_posix() for p in recipe_files(tmp_path)]
    assert found == ["a/recipe.yaml", "b/recipe.yaml"]
    assert list(recipe_files(tmp_path / "b")) == [tmp_path / "b" / "recipe.yaml"]
    assert list(recipe_files(tmp_path / "c" / "..")) == [tmp_path / "c" / ".." / p for p in found]
    assert list(recipe_files(tmp_path / "missing")) == []
