"""Builds a plan: judges what is fresh, runs the rest through doit, and gathers the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mobileprep.errors import CorruptFileError, InternalError, MobileprepError
from mobileprep.pipeline.execute import execute
from mobileprep.pipeline.state import Fresh, Stale, State
from mobileprep.pipeline.store import Output, Record
from mobileprep.plan.records import (
    CheckRecord,
    FreezeRecord,
    PackageRecord,
    RecordType,
    SamplesRecord,
    TargetRecords,
    TransformRecord,
    ValidationRecord,
    record_from,
)
from mobileprep.plan.spec import PlannedRecords, StageSpec, TargetPlan, Upstream
from mobileprep.plan.stages import PUBLISHED


@dataclass(frozen=True)
class Built:
    """What a target's stages left.

    Args:
        target: the target's plan.
        files: the outputs that make up its folder, by name there.
        records: what the report is made of.
        sources: the sha256 of each file from outside, by name.
    """

    target: TargetPlan
    files: Mapping[str, Output]
    records: TargetRecords
    sources: Mapping[str, str]


@dataclass(frozen=True)
class Ran:
    """One stage that was run, and how long it took in seconds."""

    task: str
    seconds: float


Listener = Callable[[str, float | None], None]
"""Called with a task's name as it starts, and again with its seconds when it is done."""

Warn = Callable[[str, str], None]
"""Called with a task's name and what it has to say before it does its work."""


def stale_stages(state: State) -> list[tuple[StageSpec, Stale]]:
    """The stages that would run, in order, with the reasons.

    Raises:
        CorruptFileError: an input file is missing or unreadable.
    """
    verdicts = [(s, state.verdict(s.task)) for s in state.plan.stages]
    return [(spec, verdict) for spec, verdict in verdicts if isinstance(verdict, Stale)]


def build(
    state: State, *, jobs: int = 1, listen: Listener, warn: Warn = lambda *_: None
) -> list[Ran]:
    """Run what is stale; the stages that ran, in the order they finished.

    Args:
        state: a plan against a store.
        jobs: how many stages may run at once.
        listen: told of every stage's start and end.
        warn: told what stages warn of.

    Raises:
        MobileprepError: the first failure; what ran before it stays in the store.
    """
    if not stale_stages(state):
        return []
    # Only now: a build with nothing to do must not pay for doit's start-up.
    from mobileprep.pipeline.doit_tasks import guarded, run_tasks, stage_task

    ran: list[Ran] = []
    failures: list[BaseException] = []
    tasks = []
    for spec in state.plan.stages:
        action = guarded(_action(spec, state, ran, listen, warn), failures)
        tasks.append(stage_task(spec, action, _check(spec, state)))
    went_well = run_tasks(tasks, jobs=jobs)
    if failures:
        raise failures[0]
    if not went_well:
        message = "a stage failed and left no error"
        raise InternalError(message)
    return ran


def collect(state: State) -> list[Built]:
    """The results of every target of a plan whose stages are all fresh."""
    return [collect_target(target, state) for target in state.plan.targets]


def collect_target(target: TargetPlan, state: State) -> Built:
    """The results of one target whose stages are fresh.

    Raises:
        CorruptFileError: a stage of it has not run.
    """
    files = {
        name.removeprefix(PUBLISHED): output
        for task in target.tasks
        for name, output in _record(state, task).outputs.items()
        if name.startswith(PUBLISHED)
    }
    return Built(
        target,
        files,
        _records(target.records, state),
        {f.name: state.digest(f) for f in target.sources},
    )


def check_pins(pins: Iterable[tuple[str, str, str, str]]) -> None:
    """Check the digests that a recipe pins.

    Args:
        pins: for each the file's name, the place of the pin, the digest wanted, and found.

    Raises:
        CorruptFileError: naming every file that is not what its pin says.
    """
    wrong = [
        f"{place}: {name} has the sha256 {found}, and the recipe pins {wanted}"
        for name, place, wanted, found in pins
        if wanted != found
    ]
    if wrong:
        hint = "restore the file, or pin its new digest if the change is meant"
        raise CorruptFileError("\n".join(wrong), hint)


def _action(
    spec: StageSpec, state: State, ran: list[Ran], listen: Listener, warn: Warn
) -> Callable[[], None]:
    def run() -> None:
        listen(spec.task, None)
        try:
            record = execute(spec, state, lambda text: warn(spec.task, text))
        except MobileprepError as error:
            raise _placed(error, spec) from error
        ran.append(Ran(spec.task, record.seconds))
        listen(spec.task, record.seconds)

    return run


def _placed(error: MobileprepError, spec: StageSpec) -> MobileprepError:
    """The error with the stage's name, where it says no place of its own."""
    if error.where:
        return error
    return error.at(spec.task)


def _check(spec: StageSpec, state: State) -> Callable[..., bool]:
    return lambda *_: isinstance(state.verdict(spec.task), Fresh)


def _record(state: State, task: str) -> Record:
    verdict = state.verdict(task)
    if not isinstance(verdict, Fresh):
        message = f"{task} has not run"
        raise CorruptFileError(message, "build again")
    return verdict.record


def _records(planned: PlannedRecords, state: State) -> TargetRecords:
    def read(kind: type[RecordType], up: Upstream) -> RecordType:
        output = _record(state, up.task).outputs[up.output]
        return record_from(kind, json.loads(state.store.object_path(output.sha256).read_bytes()))

    samples, validation = planned.samples, planned.validation
    return TargetRecords(
        read(FreezeRecord, planned.freeze),
        read(PackageRecord, planned.package),
        tuple(read(TransformRecord, up) for up in planned.steps),
        tuple(read(CheckRecord, up) for up in planned.checks),
        None if samples is None else read(SamplesRecord, samples),
        None if validation is None else read(ValidationRecord, validation),
    )
