"""A whole plan run: what goes on after a failure, and the order of what is told."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from mobileprep.building.pipeline.runner import (
    FollowUp,
    build,
    collect_target,
    stale_stages,
)
from mobileprep.building.pipeline.state import State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.spec import Plan, StageSpec, TargetPlan
from mobileprep.building.stages.base import Job
from mobileprep.errors import CorruptFileError, MobileprepError, TransformError, UsageError
from tests.building.pipeline.stages import SayStage, executor_of, say, spec, use

SPECS = (
    spec("r/a", say="a"),
    spec("r/b", "r/a", say="b"),
    spec("r/c", "r/b", say="c"),
    spec("r/d", "r/a", say="d"),
)
BAD = {"r/b": TransformError("no", "mend", "there")}


def target(name: str, *tasks: str) -> TargetPlan:
    return TargetPlan("r", name, tasks, (), (), {})


TARGETS = (target("one", "r/a", "r/b", "r/c"), target("two", "r/a", "r/d"))


class Failing:
    """Stages of which some fail."""

    def __init__(self) -> None:
        self.errors: dict[str, BaseException] = {}

    def __call__(self, job: Job[SayStage]) -> None:
        if job.task in self.errors:
            raise self.errors[job.task]
        say(job)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    function = Failing()
    use(monkeypatch, function)
    return function


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(Plan(SPECS, TARGETS), Store(tmp_path / "store"))


def for_each_target(do: Callable[[TargetPlan], None]) -> list[FollowUp]:
    """What is to be done for each target, when its stages have run."""
    return [FollowUp(t.folder, t.tasks, functools.partial(do, t)) for t in TARGETS]


def test_after_a_failure_nothing_else_runs(failing: Failing, state: State) -> None:
    failing.errors = dict(BAD)
    executor = executor_of(state)
    finished: list[str] = []
    with pytest.raises(TransformError) as caught:
        build(executor, follow_ups=for_each_target(lambda t: finished.append(t.target)))
    assert caught.value is BAD["r/b"]
    assert [r.task for r in executor.ran] == ["r/a"]
    assert finished == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_keep_going_runs_independent_stages(failing: Failing, state: State, jobs: int) -> None:
    failing.errors = dict(BAD)
    executor = executor_of(state)
    finished: list[str] = []
    failures = build(
        executor,
        jobs=jobs,
        keep_going=True,
        follow_ups=for_each_target(lambda t: finished.append(t.target)),
    )
    assert failures == [BAD["r/b"]]
    assert [r.task for r in executor.ran] == ["r/a", "r/d"]
    assert finished == ["two"]


@pytest.mark.parametrize("jobs", [1, 2])
def test_failures_are_in_plan_order(failing: Failing, state: State, jobs: int) -> None:
    failing.errors = {
        "r/d": TransformError("of d", "", "d"),
        "r/b": TransformError("of b", "", "b"),
    }
    failures = build(
        executor_of(state), jobs=jobs, keep_going=True, follow_ups=for_each_target(lambda _: None)
    )
    assert [error.message for error in failures] == ["of b", "of d"]


def test_failure_without_a_location_names_its_stage(failing: Failing, state: State) -> None:
    failing.errors = {"r/b": TransformError("no", "mend")}
    (error,) = build(executor_of(state), keep_going=True)
    assert (error.message, error.hint, error.where) == ("no", "mend", "r/b")


def test_a_bug_is_raised_even_where_the_build_goes_on(failing: Failing, state: State) -> None:
    failing.errors = {"r/b": TransformError("no"), "r/d": ZeroDivisionError("a bug")}
    with pytest.raises(ZeroDivisionError):
        build(executor_of(state), keep_going=True)


def test_all_went_well_without_failures(failing: Failing, state: State) -> None:
    finished: list[str] = []
    assert (
        build(executor_of(state), follow_ups=for_each_target(lambda t: finished.append(t.target)))
        == []
    )
    assert finished == ["one", "two"]
    assert failing.errors == {}


def test_targets_are_finished_where_nothing_has_to_run(failing: Failing, state: State) -> None:
    build(executor_of(state))
    assert stale_stages(state) == []
    failing.errors = {task.task: ZeroDivisionError("it ran again") for task in SPECS}
    finished: list[str] = []
    assert (
        build(executor_of(state), follow_ups=for_each_target(lambda t: finished.append(t.target)))
        == []
    )
    assert finished == ["one", "two"]


def refuse(name: str, finished: list[str]) -> Callable[[TargetPlan], None]:
    """Finishes every target but one."""

    def finish(target: TargetPlan) -> None:
        if target.target == name:
            message = f"{name} cannot be written"
            raise UsageError(message)
        finished.append(target.target)

    return finish


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("is_fresh", [False, True])
def test_a_target_that_cannot_be_finished_stops_a_build_unless_it_goes_on(
    state: State,
    is_fresh: bool,
) -> None:
    if is_fresh:
        build(executor_of(state))
    finished: list[str] = []
    failures: list[MobileprepError] = build(
        executor_of(state), keep_going=True, follow_ups=for_each_target(refuse("one", finished))
    )
    assert [str(error) for error in failures] == ["one cannot be written"]
    assert finished == ["two"]
    with pytest.raises(UsageError, match="one cannot be written"):
        build(executor_of(state), follow_ups=for_each_target(refuse("one", finished)))
    assert finished == ["two"]


@pytest.mark.usefixtures("failing")
def test_a_target_whose_stages_have_not_run_cannot_be_collected(state: State) -> None:
    with pytest.raises(CorruptFileError, match="r/a has not run") as caught:
        collect_target(TARGETS[0], state)
    assert caught.value.hint == "build again"


def test_stale_stages_are_listed_with_reasons(failing: Failing, state: State) -> None:
    failing.errors = dict(BAD)
    with pytest.raises(TransformError):
        build(executor_of(state))
    found: list[tuple[StageSpec, tuple[str, ...]]] = [
        (s, v.reasons) for s, v in stale_stages(state)
    ]
    assert found == [
        (SPECS[1], ("it has not run before",)),
        (SPECS[2], ("r/b runs first",)),
        (SPECS[3], ("it has not run before",)),
    ]
