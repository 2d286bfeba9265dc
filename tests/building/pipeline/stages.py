"""Stages made for tests of the pipeline: each says something about what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

import pytest

from mobileprep.building.pipeline import execute as execution
from mobileprep.building.pipeline.execute import Executor
from mobileprep.building.pipeline.state import State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.spec import Files, Plan, Stage, StageFile, StageSpec, Upstream
from mobileprep.building.stages.base import Job


class SayStage(Stage, frozen=True, kw_only=True):
    """Leaves the text of what it reads and ``say``, in the file ``text``."""

    stage_name: ClassVar[str] = "say"
    stage_version: ClassVar[int] = 1

    source: Files | None = None
    text: Upstream | None = None
    other: Upstream | None = None
    say: str = ""

    @property
    def output_files(self) -> tuple[str, ...]:
        return ("text",)


def say(job: Job[SayStage]) -> None:
    """The stage."""
    asked = job.asked
    texts = [f.path.read_text() for files in asked.files.values() for f in files.members]
    texts += [b"".join(job.data(up)).decode() for up in asked.upstream.values()]
    job.output("text").write_text("".join(texts) + asked.say)


def use(monkeypatch: pytest.MonkeyPatch, function: Callable[[Job[SayStage]], None]) -> None:
    """Have that function do the work of every stage."""
    monkeypatch.setattr(execution, "stage_function", lambda _name: function)


def spec(task: str, reads: str = "", also: str = "", **asked: object) -> StageSpec:
    """A stage that reads the texts of one or two others."""
    for slot, name in (("text", reads), ("other", also)):
        if name:
            asked[slot] = Upstream(name, "text")
    return StageSpec(task, SayStage(**asked))  # type: ignore[arg-type]


def file(path: Path) -> Files:
    """A file from outside."""
    return Files(path.name, path, (StageFile(path.name, path),))


def state_of(specs: Iterable[StageSpec], store: Store, *, force: bool = False) -> State:
    """Stages against a store, as another process sees it."""
    state = State(Plan(tuple(specs), ()), Store(store.root), force=force)
    state.check_outputs()
    return state


def executor_of(state: State) -> Executor:
    """What runs them, and tells nobody."""
    return Executor(state)


def text_path(state: State, task: str) -> Path:
    """Where the text of a fresh stage lies in the store."""
    return state.store.objects.path(state.record(task).outputs["text"].sha256)
