"""Build a plan: find stale stages, run them through doit, and collect the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from mobileprep.building.pipeline.execute import Executor
from mobileprep.building.pipeline.output import Output
from mobileprep.building.pipeline.state import Stale, State
from mobileprep.building.plan.spec import (
    PUBLISHED,
    CacheEntryError,
    Files,
    Records,
    RecordType,
    StageSpec,
    TargetPlan,
    Upstream,
    read_record,
)
from mobileprep.core.parallel import at_once
from mobileprep.errors import InternalError, MobileprepError


class Built(Struct, frozen=True):
    """The outputs of a target's stages.

    Args:
        target: plan of the target.
        files: published outputs, by file name.
        origins: stages that produced them, by the same names.
        records: records for the report.
        sources: SHA-256 of each input file by name.
    """

    target: TargetPlan
    files: Mapping[str, Output]
    origins: Mapping[str, Upstream]
    records: Records
    sources: Mapping[str, str]


class FollowUp(Struct, frozen=True):
    """Work that follows after some stages.

    Args:
        name: unique name.
        tasks: stages that must run first.
        do: the work; it decides itself whether it is needed.
    """

    name: str
    tasks: tuple[str, ...]
    do: Callable[[], None]


def stale_stages(state: State) -> list[tuple[StageSpec, Stale]]:
    """Return the stages that would run, in plan order, with the reasons."""
    verdicts = state.verdicts(spec.task for spec in state.plan.stages)
    stages = ((spec, verdicts[spec.task]) for spec in state.plan.stages)
    return [(spec, verdict) for spec, verdict in stages if isinstance(verdict, Stale)]


def build(
    executor: Executor,
    *,
    jobs: int = 1,
    keep_going: bool = False,
    follow_ups: Sequence[FollowUp] = (),
) -> list[MobileprepError]:
    """Run stale stages, and run follow-ups as soon as their stages are done.

    Args:
        executor: runs the stages of a plan and lists them afterwards.
        jobs: maximum number of parallel stages and follow-ups.
        keep_going: after a failure, continue with all stages that do not depend on it.
        follow_ups: additional work; follow-ups are independent of each other.

    Returns:
        The failures in plan order if ``keep_going`` is set.

    Raises:
        MobileprepError: the first failure; outputs of earlier stages stay in the cache.
    """
    state = executor.state
    if not stale_stages(state):
        # Downloading the files of one target overlaps with writing those of another.
        at_a_time = 1 if state.store.sharing is None else jobs
        return _done(follow_ups, jobs=at_a_time, keep_going=keep_going)
    # Imported late so that a build with nothing to do does not pay for importing doit.
    from mobileprep.building.pipeline.doit_tasks import guarded, plain_task, run_tasks

    failures: dict[str, BaseException] = {}
    stages = state.plan.stages
    actions = {s.task: guarded(_action(s, executor), s.task, failures) for s in stages}
    tasks = [plain_task(s.task, s.needs, actions[s.task], _check(s, executor)) for s in stages]
    for one in follow_ups:
        work = guarded(one.do, one.name, failures)
        tasks.append(plain_task(f"{one.name}/", one.tasks, work))
    went_well = run_tasks(tasks, jobs=jobs, keep_going=keep_going)
    if not keep_going:
        _run_before_failure(actions, failures)
    order = [*actions, *(one.name for one in follow_ups)]
    errors = [failures[name] for name in order if name in failures]
    reported = [error for error in errors if isinstance(error, MobileprepError)]
    for error in errors:
        if not keep_going or error not in reported or isinstance(error, CacheEntryError):
            raise error
    if not went_well and not errors:
        message = "a stage failed and left no error"
        raise InternalError(message)
    return reported


def _run_before_failure(
    actions: Mapping[str, Callable[[], object]], failures: Mapping[str, BaseException]
) -> None:
    """Run the pending stages that precede the first failure in the plan, in order.

    In a parallel build, a later stage may fail first, but the reported error must not depend on
    timing: of several checks in a chain, the first failing one names the step that broke the model.
    """
    is_told = all(
        isinstance(error, MobileprepError) and not isinstance(error, CacheEntryError)
        for error in failures.values()
    )
    if not is_told or not failures.keys() & actions.keys():
        return
    for task, action in actions.items():
        if task in failures:
            return
        action()


def _done(follow_ups: Sequence[FollowUp], *, jobs: int, keep_going: bool) -> list[MobileprepError]:
    """Run the follow-ups of finished stages, and return their failures if ``keep_going`` is set."""

    def failure(one: FollowUp) -> MobileprepError | None:
        try:
            one.do()
        except MobileprepError as error:
            if not keep_going or isinstance(error, CacheEntryError):
                raise
            return error
        return None

    return [error for error in at_once(failure, follow_ups, jobs) if error is not None]


def collect(state: State) -> list[Built]:
    """Return the results of every target of a plan whose stages are all fresh."""
    return [collect_target(target, state) for target in state.plan.targets]


def collect_target(target: TargetPlan, state: State, executor: Executor | None = None) -> Built:
    """Return the results of a target whose stages are fresh."""
    record = state.record if executor is None else executor.record

    def read(kind: type[RecordType], up: Upstream) -> RecordType:
        if executor is not None:
            return read_record(kind, executor.read(up), up)
        pieces = state.store.pieces(record(up.task).outputs[up.output])
        return read_record(kind, b"".join(pieces), up)

    files = {
        name.removeprefix(PUBLISHED): (output, Upstream(task, name))
        for task in target.tasks
        for name, output in record(task).outputs.items()
        if name.startswith(PUBLISHED)
    }

    return Built(
        target,
        {name: output for name, (output, _) in files.items()},
        {name: origin for name, (_, origin) in files.items()},
        Records(read(kind, up) for kind, up in target.records),
        {f.name: state.digest(f) for f in target.sources},
    )


def _action(spec: StageSpec, executor: Executor) -> Callable[[], None]:
    def run() -> None:
        try:
            executor.run(spec)
        except CacheEntryError:
            raise
        except MobileprepError as error:
            raise _placed(error, spec) from error

    return run


def _placed(error: MobileprepError, spec: StageSpec) -> MobileprepError:
    """Return an error with absolute paths, located at the stage unless it has a location."""
    paths = {files.name: str(files.root) for files in spec.stage.files.values() if _is_moved(files)}
    texts = [error.message, error.hint, error.where or spec.task]
    for name in sorted(paths, key=len, reverse=True):
        texts = [text.replace(name, paths[name]) for text in texts]
    if texts == [error.message, error.hint, error.where]:
        return error
    message, hint, where = texts
    return error.at(where, message=message, hint=hint)


def _is_moved(files: Files) -> bool:
    """Return whether a name replaces an absolute path, which records must not contain."""
    return any(file.written for file in files.members)


def _check(spec: StageSpec, executor: Executor) -> Callable[..., bool]:
    return lambda *_: executor.is_fresh(spec)
