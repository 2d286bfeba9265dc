"""Freshness and publishing, with stages made for the purpose: each joins its inputs' text."""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec import structs

from mobileprep.building.builder import run_build
from mobileprep.building.pipeline import execute as execution
from mobileprep.building.pipeline.execute import Executor
from mobileprep.building.pipeline.publish import MANIFEST, publish, unpublish
from mobileprep.building.pipeline.runner import build, collect, stale_stages
from mobileprep.building.pipeline.state import State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.spec import (
    Files,
    Plan,
    PlannedRecord,
    Stage,
    StageFile,
    StageSpec,
    TargetPlan,
    Upstream,
)
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.package.spec import CompressRecord, ModelFacts, PackageRecord
from mobileprep.core.files import map_file
from mobileprep.errors import ArtifactError, CorruptFileError, InternalError, TransformError

OUTPUTS = ("freeze.json", "package.json", "compress.json", "files/text")


class JoinStage(Stage, frozen=True, kw_only=True):
    """Asks for all inputs' text and ``say``, cut to ``keep`` characters, or to fail."""

    stage_name: ClassVar[str] = "join"
    stage_version: ClassVar[int] = 1

    source: Files | None = None
    text: Upstream | None = None
    say: str = ""
    keep: int = 1000
    fail: BaseException | None = None

    @property
    def output_files(self) -> tuple[str, ...]:
        return OUTPUTS

    @cached_property
    def parameters(self) -> dict[str, Any]:
        # An exception cannot be fingerprinted; its text can.
        return {"say": self.say, "keep": self.keep, "fail": repr(self.fail)}


def join(job: Job[JoinStage]) -> None:
    """The stage."""
    asked = job.asked
    if asked.fail is not None:
        raise asked.fail
    texts = [f.path.read_text() for files in asked.files.values() for f in files.members]
    texts += [b"".join(job.data(up)).decode() for up in asked.upstream.values()]
    text = "".join(texts) + asked.say
    job.output("files").mkdir(exist_ok=True)
    job.output("files/text").write_text(text[: asked.keep])
    size = len(text)
    job.write_record("freeze.json", FreezeRecord(size, 0, 0, 0, {}, 0, (), (), {}))
    facts = ModelFacts("text", 0, 0, 0, size)
    job.write_record("compress.json", CompressRecord(size, "none"))
    job.write_record("package.json", PackageRecord(facts, {}, ()))


@pytest.fixture(autouse=True)
def _stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "stage_function", lambda _name: join)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "source.txt"
    path.parent.mkdir()
    path.write_text("abc")
    return path


def named(path: Path) -> Files:
    return Files(path.name, path, (StageFile(path.name, path),))


def chain(source: Path, *, first: dict | None = None, second: dict | None = None) -> Plan:
    """source -> a -> b, and a target that ships b."""
    a = StageSpec("r/a", JoinStage(source=named(source), **(first or {})))
    text = Upstream("r/a", "files/text")
    b = StageSpec("r/b", JoinStage(text=text, **(second or {"say": "!"})))
    records = (
        PlannedRecord(FreezeRecord, Upstream("r/b", "freeze.json")),
        PlannedRecord(PackageRecord, Upstream("r/b", "package.json")),
        PlannedRecord(CompressRecord, Upstream("r/b", "compress.json")),
    )
    target = TargetPlan("r", "t", ("r/a", "r/b"), records, named(source).members, {})
    return Plan((a, b), (target,))


def ran(plan: Plan, store: Store, **options: object) -> list[str]:
    # As another process has it: a store serves one run.
    state = State(plan, Store(store.root), force=bool(options.pop("force", False)))
    state.check_outputs()
    executor = Executor(state)
    build(executor, **options)  # type: ignore[arg-type]
    return [r.task for r in executor.ran]


def test_a_first_build_runs_everything_and_a_second_nothing(source: Path, store: Store) -> None:
    assert ran(chain(source), store) == ["r/a", "r/b"]
    assert ran(chain(source), store) == []


def test_changed_parameter_reruns_later_stages(source: Path, store: Store) -> None:
    ran(chain(source), store)
    assert ran(chain(source, second={"say": "?"}), store) == ["r/b"]
    assert ran(chain(source), store) == []


def test_a_change_with_the_same_time_and_size_is_seen(source: Path, store: Store) -> None:
    ran(chain(source), store)
    before = source.stat()
    source.write_text("xyz")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ran(chain(source), store) == ["r/a", "r/b"]


def test_an_unchanged_result_stops_the_change(source: Path, store: Store) -> None:
    ran(chain(source, first={"keep": 2}), store)
    source.write_text("abX")
    assert ran(chain(source, first={"keep": 2}), store) == ["r/a"]


def test_a_moved_folder_is_as_fresh(source: Path, store: Store, tmp_path: Path) -> None:
    ran(chain(source), store)
    moved = tmp_path / "elsewhere" / "source.txt"
    moved.parent.mkdir()
    source.rename(moved)
    assert ran(chain(moved), store) == []


SPOILS = [lambda p: p.unlink(), lambda p: p.write_text("abcX")]


def spoilt(source: Path, store: Store, task: str, spoil: Callable[[Path], object]) -> Store:
    """The store with what a stage left spoilt, as another process sees it."""
    state = State(chain(source), store)
    stale_stages(state)
    spoil(store.objects.path(state.record(task).outputs["files/text"].sha256))
    return Store(store.root)


@pytest.mark.parametrize("spoil", SPOILS)
def test_damaged_object_is_rebuilt_for_a_directory(
    source: Path, store: Store, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    ran(chain(source), store)
    again = spoilt(source, store, "r/b", spoil)
    run = run_build(State(chain(source), again), tmp_path, jobs=1)
    assert [r.task for r in run.ran] == ["r/a", "r/b"]
    assert (tmp_path / "r/t/text").read_text() == "abc!"


@pytest.mark.parametrize("spoil", SPOILS)
def test_damaged_object_is_rebuilt_for_a_stage(
    source: Path, store: Store, spoil: Callable[[Path], object]
) -> None:
    ran(chain(source), store)
    again = spoilt(source, store, "r/a", spoil)
    assert ran(chain(source), again) == []
    assert ran(chain(source, second={"say": "?"}), again) == ["r/a", "r/b"]


def test_damaged_record_is_rebuilt(source: Path, store: Store) -> None:
    ran(chain(source), store)
    for record in (store.folder / "ac").rglob("*.json"):
        record.write_text('{"outputs": 3')
    assert ran(chain(source), store) == ["r/a", "r/b"]


def test_force_runs_everything(source: Path, store: Store) -> None:
    ran(chain(source), store)
    assert ran(chain(source), store, force=True) == ["r/a", "r/b"]


def test_the_reason_names_the_parameter(source: Path, store: Store) -> None:
    ran(chain(source), store)
    stale = stale_stages(State(chain(source, second={"say": "?"}), store))
    assert [(s.task, v.reasons) for s, v in stale] == [
        ("r/b", ('say: "!" became "?"',)),
    ]


def test_the_reason_names_the_input(source: Path, store: Store) -> None:
    ran(chain(source), store)
    source.write_text("new")
    stale = stale_stages(State(chain(source), Store(store.root)))
    assert stale[0][1].reasons == (
        "input source:source.txt has changed: ba7816bf8f01 became 11507a0e2f5e",
    )
    assert stale[1][1].reasons == ("r/a runs first",)


def test_failure_is_raised_and_finished_stages_stay_cached(source: Path, store: Store) -> None:
    broken = chain(source, second={"fail": TransformError("no", "mend", "there")})
    with pytest.raises(TransformError) as caught:
        ran(broken, store)
    assert (caught.value.message, caught.value.where) == ("no", "there")
    assert ran(chain(source), store) == ["r/b"]


def test_a_bug_surfaces_whole(source: Path, store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        ran(chain(source, second={"fail": ZeroDivisionError("bug")}), store)


def test_a_file_that_changes_during_its_stage_is_an_error(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddle(job: Job) -> None:
        join(job)
        source.write_text("meddled")

    monkeypatch.setattr(execution, "stage_function", lambda _name: meddle)
    with pytest.raises(CorruptFileError, match="changed during the build"):
        ran(chain(source), store)


def test_a_file_that_changes_before_its_stage_begins_is_an_error(
    source: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digest was taken when the build began; an earlier stage may have taken hours."""
    other = tmp_path / "in" / "other.txt"
    other.write_text("other")
    a, b = chain(source).stages
    asked = structs.replace(b.stage, source=named(other))
    b = structs.replace(b, stage=asked)

    def meddle(job: Job) -> None:
        join(job)
        if job.task == "r/a":
            other.write_text("OTHER")

    monkeypatch.setattr(execution, "stage_function", lambda _name: meddle)
    with pytest.raises(CorruptFileError, match=r"other\.txt changed during the build"):
        ran(Plan((a, b), ()), store)
    monkeypatch.setattr(execution, "stage_function", lambda _name: join)
    assert ran(Plan((a, b), ()), store) == ["r/b"]
    state = State(Plan((a, b), ()), store)
    stale_stages(state)
    output = state.record("r/b").outputs["files/text"]
    assert store.objects.path(output.sha256).read_text() == "OTHERabc!"


@pytest.mark.parametrize("spoil", [Path.unlink, lambda p: p.write_text("x" * 9)])
def test_a_file_that_goes_while_its_stage_runs_is_an_error(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Path], object]
) -> None:
    def meddle(job: Job) -> None:
        join(job)
        spoil(source)

    monkeypatch.setattr(execution, "stage_function", lambda _name: meddle)
    with pytest.raises(CorruptFileError, match=r"source\.txt changed during the build"):
        ran(chain(source), store)
    assert not list((store.folder / "ac").rglob("*"))
    assert not list((store.folder / "tmp").iterdir())


BAD_ADDRESS = OSError(errno.EFAULT, os.strerror(errno.EFAULT))


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_mapped_input_that_is_cut_short_is_not_blamed_on_the_store(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    def meddle(_job: Job) -> None:
        os.truncate(source, 0)
        error: Exception = BAD_ADDRESS
        for _ in range(times):  # as those who write to the store tell it
            outer = ArtifactError("the store cannot be written", "", str(store.folder))
            outer.__cause__ = error
            error = outer
        raise error

    monkeypatch.setattr(execution, "stage_function", lambda _name: meddle)
    with pytest.raises(CorruptFileError, match=r"source\.txt changed during the build"):
        ran(chain(source), store)


@pytest.mark.skipif(sys.platform != "linux", reason="what is mapped may not be cut short there")
def test_truncated_mapped_input_is_reported(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.write_bytes(bytes(1 << 16))

    def meddle(job: Job) -> None:
        view = map_file(source)
        os.truncate(source, 0)
        with job.output("text").open("wb", buffering=0) as stream:
            stream.write(view)

    monkeypatch.setattr(execution, "stage_function", lambda _name: meddle)
    with pytest.raises(CorruptFileError, match=r"source\.txt changed during the build"):
        ran(chain(source), store)


def test_an_input_that_is_half_written_is_not_called_corrupt(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meddle(_job: Job) -> None:
        os.truncate(source, 1)
        message = "is truncated"
        raise CorruptFileError(message, "export it again", str(source))

    monkeypatch.setattr(execution, "stage_function", lambda _name: meddle)
    with pytest.raises(CorruptFileError, match=r"source\.txt changed during the build"):
        ran(chain(source), store)


def test_a_failed_stage_leaves_no_workspace(source: Path, store: Store) -> None:
    for error in (TransformError("no"), ZeroDivisionError("bug"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            ran(chain(source, second={"fail": error}), store)
        assert not list((store.folder / "tmp").iterdir())


def test_a_full_disk_ends_the_build_and_the_next_one_goes_on(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_self: Path, _target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(ArtifactError, match="No space left") as caught:
            ran(chain(source), store)
        assert "MOBILEPREP_CACHE" in caught.value.hint
        assert "free space" in caught.value.hint
    assert [p.name for p in store.folder.rglob("*") if p.is_file()] == ["lock"]
    assert ran(chain(source), store) == ["r/a", "r/b"]


def test_a_stage_that_leaves_too_little_is_our_own_fault(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "stage_function", lambda _name: lambda _job: None)
    with pytest.raises(InternalError, match=r"the stage join did not leave freeze\.json"):
        ran(chain(source), store)


def test_a_fresh_build_writes_nothing_to_the_store(source: Path, store: Store) -> None:
    ran(chain(source), store)
    before = {p: p.stat().st_mtime_ns for p in store.folder.rglob("*")}
    assert ran(chain(source), store) == []
    assert {p: p.stat().st_mtime_ns for p in store.folder.rglob("*")} == before


def test_errors_without_a_place_get_the_stage_s(source: Path, store: Store) -> None:
    with pytest.raises(TransformError) as caught:
        ran(chain(source, second={"fail": TransformError("no", "mend")}), store)
    assert (caught.value.message, caught.value.hint, caught.value.where) == ("no", "mend", "r/b")


def test_first_failure_in_plan_order_is_reported(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_failed = threading.Event()

    def work(job: Job[JoinStage]) -> None:
        if job.task == "r/slow":
            assert has_failed.wait(10)
        try:
            join(job)
        except TransformError:
            has_failed.set()
            raise

    monkeypatch.setattr(execution, "stage_function", lambda _name: work)
    slow = StageSpec("r/slow", JoinStage(source=named(source)))
    text = Upstream("r/slow", "files/text")
    first = StageSpec("r/first", JoinStage(text=text, fail=TransformError("first")))
    later = StageSpec("r/later", JoinStage(source=named(source), fail=TransformError("later")))
    never = StageSpec("r/never", JoinStage(text=text, say="never"))
    with pytest.raises(TransformError, match="first"):
        ran(Plan((slow, first, later, never), ()), store, jobs=2)


def test_two_jobs_give_the_same(source: Path, store: Store) -> None:
    assert ran(chain(source), store, jobs=2) == ["r/a", "r/b"]
    assert ran(chain(source), store, jobs=2) == []


def published(
    plan: Plan, store: Store, out: Path, extra: dict[str, bytes] | None = None
) -> list[str]:
    state = State(plan, Store(store.root))
    executor = Executor(state)
    build(executor)
    (built,) = collect(state)
    todo = publish(built, extra or {}, state.store, out, executor.obtain)
    return [*todo.write, *(f"-{n}" for n in todo.remove)]


def test_a_folder_is_written_once(source: Path, store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert published(chain(source), store, out, {"note": b"n"}) == ["note", "text", MANIFEST]
    assert (out / "r/t/text").read_text() == "abc!"
    assert published(chain(source), store, out, {"note": b"n"}) == []


@pytest.mark.parametrize("spoil", [lambda p: p.unlink(), lambda p: p.write_text("abc?")])
def test_a_tampered_output_is_mended(
    source: Path, store: Store, tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    out = tmp_path / "out"
    published(chain(source), store, out)
    spoil(out / "r/t/text")
    assert published(chain(source), store, out) == ["text", MANIFEST]
    assert (out / "r/t/text").read_text() == "abc!"


def test_files_of_an_earlier_build_go_and_foreign_ones_stay(
    source: Path, store: Store, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    published(chain(source), store, out, {"old/name": b"o"})
    (out / "r/t/mine.txt").write_text("keep")
    assert "-old/name" in published(chain(source), store, out)
    assert sorted(p.name for p in (out / "r/t").iterdir()) == [MANIFEST, "mine.txt", "text"]


def test_a_manifest_that_points_elsewhere_removes_nothing(
    source: Path, store: Store, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    published(chain(source), store, out)
    victim = tmp_path / "victim"
    victim.write_text("v")
    names = (out / "r/t" / MANIFEST).read_text().replace('"text"', '"../../../victim"')
    (out / "r/t" / MANIFEST).write_text(names)
    published(chain(source), store, out)
    unpublish(out / "r/t")
    assert victim.exists()


def test_unpublish_removes_published_files(source: Path, store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    published(chain(source), store, out)
    assert unpublish(out / "r/t") == ["text"]
    assert not (out / "r").exists()
