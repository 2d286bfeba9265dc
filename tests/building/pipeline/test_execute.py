"""One stage run in a folder of its own."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from mobileprep.building.pipeline import execute
from mobileprep.building.pipeline import execute as execution
from mobileprep.building.pipeline.execute import Executor, Handover, return_free_memory
from mobileprep.building.pipeline.output import Output, Record
from mobileprep.building.pipeline.runner import build
from mobileprep.building.pipeline.state import State
from mobileprep.building.pipeline.store import INLINE, Store
from mobileprep.building.plan.spec import CacheEntryError, Plan, Stage, StageSpec, Upstream
from mobileprep.building.stages.base import Job
from mobileprep.core.files import sha256_bytes
from mobileprep.errors import ArtifactError, InternalError
from mobileprep.graph.graph import Graph
from tests.building.pipeline.stages import (
    SayStage,
    executor_of,
    say,
    spec,
    state_of,
    text_path,
    use,
)


class LeaveStage(Stage, frozen=True, kw_only=True):
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
def run(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Record]:
    def run(function: Callable[[Job[LeaveStage]], None], spec: StageSpec = FIRST) -> Record:
        monkeypatch.setattr(execution, "stage_function", lambda _name: function)
        state = State(Plan((FIRST, SECOND), ()), store)
        return Executor(state).run(spec)

    return run


def workspaces(store: Store) -> list[Path]:
    return list((store.folder / "tmp").iterdir())


def test_record_has_the_duration(run: Callable[..., Record]) -> None:
    def slow(job: Job[LeaveStage]) -> None:
        time.sleep(0.02)
        leave(job)

    started = time.perf_counter()
    record = run(slow)
    assert 0.02 <= record.seconds <= time.perf_counter() - started + 1e-4


def test_outputs_are_stored_and_the_work_directory_is_removed(
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


def test_stage_of_a_concurrent_build_is_not_repeated(run: Callable[..., Record]) -> None:
    before = run(leave)
    assert run(lambda _job: pytest.fail("it ran again")) == before


def test_upstream_stages_run_first(run: Callable[..., Record], store: Store) -> None:
    record = run(leave, SECOND)
    text = record.components["inputs"]["text"]
    assert store.objects.path(text).read_text() == "a"


def test_a_promised_output_that_is_not_there_is_an_error(
    run: Callable[..., Record], store: Store
) -> None:
    with pytest.raises(InternalError, match="the stage leave did not leave a"):
        run(lambda job: job.output("b").write_text("b"))
    assert workspaces(store) == []


def test_full_disk_error_names_the_cache_directory(
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


# Stages that read others: r/a -> r/b, r/c and r/twin, which is r/b under another name.
SHARED = (
    spec("r/a", say="a"),
    spec("r/b", "r/a", say="b"),
    spec("r/twin", "r/a", say="b"),
    spec("r/c", "r/a", "r/b", say="c"),
)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks whose stage has done its work."""
    tasks: list[str] = []

    def work(job: Job[SayStage]) -> None:
        say(job)
        tasks.append(job.task)

    use(monkeypatch, work)
    return tasks


def test_lost_input_is_rebuilt(store: Store, said: list[str]) -> None:
    build(executor_of(state_of(SHARED, store)))
    said.clear()
    changed = (*SHARED[:3], spec("r/c", "r/a", "r/b", say="C"))
    state = state_of(changed, store)
    for task in ("r/a", "r/b"):
        state.verdict(task)
        text_path(state, task).unlink()
    executor = executor_of(state_of(changed, store))
    build(executor)
    assert said == ["r/a", "r/b", "r/c"]
    assert [ran.task for ran in executor.ran] == said
    assert text_path(executor.state, "r/c").read_text() == "aabC"


def test_graph_in_memory_is_not_fetched(
    store: Store, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(executor_of(state_of(SHARED, store)))
    executor = executor_of(state_of(SHARED, store))
    monkeypatch.setattr(Handover, "find", lambda *_: Graph())
    monkeypatch.setattr(executor.state.store, "obtain", lambda _: pytest.fail("it looked"))
    said.clear()
    assert executor.obtain(Upstream("r/a", "text")).size == 1
    assert said == []


def test_different_output_of_a_rerun_reruns_readers(
    store: Store, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(executor_of(state_of(SHARED, store)))
    state = state_of(SHARED, store)
    for task in ("r/a", "r/c"):
        state.verdict(task)
    text_path(state, "r/a").unlink()

    def another(job: Job[SayStage]) -> None:
        said.append(job.task)
        say(job)
        if job.task == "r/a":
            job.output("text").write_text("A")

    use(monkeypatch, another)
    said.clear()
    executor = executor_of(state_of(SHARED, store))
    executor.state.check_outputs([Upstream("r/a", "text")])
    executor.obtain(Upstream("r/a", "text"))
    assert said == ["r/a"]
    build(executor)
    assert said == ["r/a", "r/b", "r/c"]
    assert text_path(executor.state, "r/c").read_text() == "AAbc"


@pytest.mark.usefixtures("said")
def test_an_input_that_comes_out_otherwise_is_judged_before_the_stage_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage's fingerprint is of what it reads, not of what its input was once."""
    build(executor_of(state_of(SHARED, store)))
    changed = (SHARED[0], spec("r/b", "r/a", say="B"))
    state = state_of(changed, store)
    state.verdict("r/a")
    text_path(state, "r/a").unlink()
    use(monkeypatch, lambda job: job.output("text").write_text(f"{job.task} anew"))
    executor = executor_of(state_of(changed, store))
    record = executor.run(changed[1])
    assert record.components["inputs"] == {"text": sha256_bytes(b"r/a anew")}


def test_lost_output_raises_and_the_work_is_done_once_more(store: Store, said: list[str]) -> None:
    build(executor_of(state_of(SHARED, store)))
    executor = executor_of(state_of(SHARED, store))
    text_path(executor.state, "r/b").unlink()
    said.clear()
    with pytest.raises(CacheEntryError, match="the stored text is missing or damaged") as caught:
        executor.read(Upstream("r/b", "text"))
    assert caught.value.tasks == ("r/b",)
    assert executor.attempt(lambda: executor.read(Upstream("r/b", "text"))) == b"ab"
    assert said == ["r/a", "r/b"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_two_tasks_that_ask_for_the_same_run_once(
    store: Store, said: list[str], monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """The second finds the record of the first, also where it began while the first ran."""
    begun = threading.Event()

    def slow(job: Job[SayStage]) -> None:
        begun.set()
        time.sleep(0.05)
        say(job)
        said.append(job.task)

    use(monkeypatch, slow)
    executor = executor_of(state_of(SHARED, store))
    build(executor, jobs=jobs)
    assert begun.is_set()
    assert len(said) == 3
    assert len(executor.ran) == 3
    assert text_path(executor.state, "r/b") == text_path(executor.state, "r/twin")


def test_two_stages_that_miss_the_same_input_make_it_again_once(
    store: Store, said: list[str]
) -> None:
    build(executor_of(state_of(SHARED, store)))
    changed = (SHARED[0], spec("r/b", "r/a", say="B"), spec("r/c", "r/a", say="C"))
    state = state_of(changed, store)
    state.verdict("r/a")
    text_path(state, "r/a").unlink()
    state = state_of(changed, store)
    both_look = threading.Barrier(2)
    obtain = state.store.obtain

    def together(output: Output) -> bool:
        found = obtain(output)
        with contextlib.suppress(threading.BrokenBarrierError):
            both_look.wait(0.3)
        return found

    state.store.obtain = together  # type: ignore[method-assign]
    said.clear()
    executor = executor_of(state)
    with ThreadPoolExecutor(2) as pool:
        records = list(pool.map(executor.run, changed[1:]))
    assert sorted(said) == ["r/a", "r/b", "r/c"]
    assert [store.objects.path(r.outputs["text"].sha256).read_text() for r in records] == [
        "aB",
        "aC",
    ]


def test_stage_events_and_warnings_are_reported(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warning(job: Job[SayStage]) -> None:
        job.warn("careful")
        say(job)

    use(monkeypatch, warning)
    told: list[object] = []
    executor = Executor(
        state_of(SHARED[:1], store),
        listen=lambda task, seconds: told.append((task, None if seconds is None else seconds >= 0)),
        warn=lambda task, text: told.append((task, text)),
    )
    executor.run(SHARED[0])
    assert told == [("r/a", None), ("r/a", "careful"), ("r/a", True)]
    executor.run(SHARED[0])
    assert len(told) == 3


def test_only_short_unpublished_json_is_inline(run: Callable[..., Record], store: Store) -> None:
    def more(job: Job[LeaveStage]) -> None:
        leave(job)
        job.output("files").mkdir()
        for name in ("facts.json", "files/facts.json"):
            job.output(name).write_text("{}")
        job.output("long.json").write_text(" " * (INLINE + 1))
        job.output("just.json").write_text(" " * INLINE)

    outputs = run(more).outputs
    assert {name: out.text is not None for name, out in outputs.items()} == {
        "a": False,
        "facts.json": True,
        "files/facts.json": False,
        "just.json": True,
        "long.json": False,
    }
    assert store.objects.path(outputs["files/facts.json"].sha256).read_text() == "{}"


def test_fresh_stage_releases_its_inputs(store: Store, said: list[str]) -> None:
    executor = executor_of(state_of(SHARED, store))
    assert not executor.is_fresh(SHARED[0])
    executor.run(SHARED[0])
    assert executor.is_fresh(SHARED[0])
    assert said == ["r/a"]


class Library:
    """A C library that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def malloc_trim(self, pad: int) -> None:
        self.asked.append(pad)


def test_all_is_asked_for_on_linux_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: library)
    monkeypatch.setattr(execute.sys, "platform", "linux")
    return_free_memory()
    assert library.asked == [0]
    monkeypatch.setattr(execute.sys, "platform", "darwin")
    return_free_memory()
    assert library.asked == [0]


def test_library_without_malloc_trim_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    monkeypatch.setattr(ctypes, "CDLL", opened.append)
    monkeypatch.setattr(execute.sys, "platform", "linux")
    return_free_memory()
    assert opened == [None]
