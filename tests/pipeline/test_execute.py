"""One stage run in a folder of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from mobileprep.errors import ArtifactError, InternalError
from mobileprep.pipeline import execute as execution
from mobileprep.pipeline.execute import Executor
from mobileprep.pipeline.output import Record
from mobileprep.pipeline.state import State
from mobileprep.pipeline.store import Store
from mobileprep.plan.spec import Plan, Stage, StageSpec, Upstream
from mobileprep.stages.base import Job


@dataclass(frozen=True, kw_only=True)
class LeaveStage(Stage):
    """Leaves a file."""

    stage_name: ClassVar[str] = "leave"
    stage_version: ClassVar[int] = 1

    text: Upstream | None = None

    @property
    def output_files(self) -> tuple[str, ...]:
        return ("a",)


FIRST = StageSpec("r/a", LeaveStage())
SECOND = StageSpec("r/b", LeaveStage(text=Upstream("r/a", "a")))


def leave(job: Job[LeaveStage]) -> None:
    job.output("a").write_text("a")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def run(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Record]:
    def run(function: Callable[[Job[LeaveStage]], None], spec: StageSpec = FIRST) -> Record:
        monkeypatch.setattr(execution, "stage_function", lambda _name: function)
        state = State(Plan((FIRST, SECOND), ()), store)
        return Executor(state, lambda *_: None, lambda *_: None).run(spec)

    return run


def workspaces(store: Store) -> list[Path]:
    return list((store.folder / "tmp").iterdir())


def test_its_record_tells_how_long_it_took(run: Callable[..., Record]) -> None:
    def slow(job: Job[LeaveStage]) -> None:
        time.sleep(0.02)
        leave(job)

    started = time.perf_counter()
    record = run(slow)
    assert 0.02 <= record.seconds <= time.perf_counter() - started + 1e-4


def test_all_that_it_leaves_is_taken_and_its_folder_goes(
    run: Callable[..., Record], store: Store
) -> None:
    def more(job: Job[LeaveStage]) -> None:
        leave(job)
        job.output("files/deeper").mkdir(parents=True)
        job.output("files/deeper/b").write_text("b")

    outputs = run(more).outputs
    assert list(outputs) == ["a", "files/deeper/b"]
    assert store.objects.path(outputs["files/deeper/b"].sha256).read_text() == "b"
    assert workspaces(store) == []


def test_what_another_build_has_just_run_does_not_run_again(run: Callable[..., Record]) -> None:
    before = run(leave)
    assert run(lambda _job: pytest.fail("it ran again")) == before


def test_what_a_stage_needs_runs_first(run: Callable[..., Record], store: Store) -> None:
    record = run(leave, SECOND)
    text = record.components["inputs"]["text"]
    assert store.objects.path(text).read_text() == "a"


def test_a_promised_output_that_is_not_there_is_an_error(
    run: Callable[..., Record], store: Store
) -> None:
    with pytest.raises(InternalError, match="the stage leave did not leave a"):
        run(lambda job: job.output("b").write_text("b"))
    assert workspaces(store) == []


def test_a_full_disk_is_told_of_the_store_and_not_of_a_file_in_it(
    run: Callable[..., Record], store: Store
) -> None:
    def full(job: Job[LeaveStage]) -> None:
        raise ArtifactError(*("cannot be written", "", str(job.output("a")))) from OSError(
            28, "full"
        )

    with pytest.raises(ArtifactError, match="the store cannot be written: full") as caught:
        run(full)
    assert caught.value.where == str(store.folder)


def test_another_fault_of_an_artifact_stays_as_it_is(run: Callable[..., Record]) -> None:
    error = ArtifactError(*("is too large", "", "model.pb"))

    def refuse(_job: Job[LeaveStage]) -> None:
        raise error

    with pytest.raises(ArtifactError) as caught:
        run(refuse)
    assert caught.value is error
