"""Build recipes into directories for apps."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mobileprep.building.lock import check_locks, lock_warnings
from mobileprep.building.pages import check_page, write_pages
from mobileprep.building.pipeline.eviction import store_bound
from mobileprep.building.pipeline.execute import Advance, Executor, Listener, Ran, ignore
from mobileprep.building.pipeline.execute import Warn as StageWarn
from mobileprep.building.pipeline.locks import folder_locks
from mobileprep.building.pipeline.overlaps import check_overlaps
from mobileprep.building.pipeline.publish import MANIFEST
from mobileprep.building.pipeline.runner import FollowUp, stale_stages
from mobileprep.building.pipeline.runner import build as run_stages
from mobileprep.building.pipeline.state import State
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.spec import TargetPlan
from mobileprep.building.report.collect import Report
from mobileprep.building.stages.search.spec import ChoiceStage
from mobileprep.building.stages.transform.spec import TransformStage
from mobileprep.building.targets import (
    plan_state,
    promised_files,
    publish_target,
    shared_store,
    wanted_outputs,
)
from mobileprep.core.arguments import FilePath, Warn, as_warning, names_of
from mobileprep.core.files import check_name, check_writable, file_inside, inside
from mobileprep.core.limits import shared_memory
from mobileprep.core.parallel import cores
from mobileprep.errors import (
    ArtifactError,
    CorruptFileError,
    MissedLimitError,
    MobileprepError,
    UsageError,
)
from mobileprep.recipe.load import load_recipes, target_folders
from mobileprep.recipe.model import Recipe

if TYPE_CHECKING:
    from mobileprep.building.verdicts import Verdict


class BuiltTarget(Struct, frozen=True):
    """The output directory of a target.

    Args:
        folder: path of the directory, which contains ``manifest.json`` with the files' digests.
        report: sizes, costs, effects of transforms, and changes of outputs.
        is_changed: whether the build wrote to the directory.
    """

    folder: Path
    report: Report
    is_changed: bool


class BuildResult(Struct, frozen=True):
    """The result of a build.

    Args:
        targets: directories of the targets, in the order of the recipes.
        ran: names of the stages that ran; empty if everything was fresh.
    """

    targets: tuple[BuiltTarget, ...]
    ran: tuple[str, ...]


def plan(
    recipes: Recipe | FilePath | Iterable[Recipe | FilePath],
    out: FilePath = "out",
    *,
    targets: Sequence[str] = (),
    warn: Warn | None = None,
) -> list[Verdict]:
    """Predict which stages ``build`` would run, and why, without running any.

    Args:
        recipes: recipes, or paths of recipe files.
        out: the output directory.
        targets: names of targets; by default all.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Returns:
        A verdict for each stage and for each directory to publish.

    Raises:
        RecipeError: a recipe is invalid.
        CorruptFileError: an input is missing or damaged.
        ArtifactError: the output directory cannot be used.
    """
    return Build(recipes, out, targets=targets, warn=warn or as_warning).preview()


def build(
    recipes: Recipe | FilePath | Iterable[Recipe | FilePath],
    out: FilePath = "out",
    *,
    targets: Sequence[str] = (),
    jobs: int | None = None,
    force: bool = False,
    checksum: bool = False,
    wait: bool = True,
    locked: bool = False,
    warn: Warn | None = None,
) -> BuildResult:
    """Build recipes: run stale stages and update each target's directory.

    Args:
        recipes: recipes, or paths of recipe files.
        out: the output directory, with a subdirectory for each recipe and target.
        targets: names of targets; by default all.
        jobs: number of parallel stages; by default the number of processors.
        force: run every stage again.
        checksum: hash every file instead of trusting unchanged file times.
        wait: wait for other processes that build the same target instead of failing.
        locked: require that everything matches the ``mobileprep.lock`` next to each recipe.
        warn: called with each warning; by default it is a ``MobileprepWarning``.

    Returns:
        The directories of the targets, and the stages that ran.

    Raises:
        UsageError: a target does not exist, two recipes have the same name, or ``jobs`` is below 1.
        RecipeError: a recipe is invalid, see ``load_recipe``.
        CorruptFileError: a file is missing, damaged, or differs from the digest that the recipe or
            its lock file pins.
        MobileprepError: a stage failed: InvalidGraphError, UnsupportedError, and TransformError for
            the model, AccuracyError for a check, a validation, or a budget.
        ArtifactError: an output cannot be written or would overwrite an input, or another process
            builds the same target and ``wait`` is not set.
    """
    workers = workers_of(jobs)
    report_warning = warn or as_warning
    work = Build(
        recipes,
        out,
        targets=targets,
        force=force,
        checksum=checksum,
        locked=locked,
        warn=report_warning,
    )
    work.plan()
    with work.hold(wait=wait, tell=report_warning):
        run = work.run(jobs=workers)
    for text in run.warnings:
        report_warning(text)
    return BuildResult(run.targets, tuple(stage.task for stage in run.ran))


class Build:
    """A build of recipes into a directory: planned once, previewed, and run.

    Args:
        recipes: recipes, or paths of recipe files.
        out: the output directory.
        targets: names of the targets to build; empty for all.
        force: run every stage again.
        checksum: hash every file instead of trusting unchanged file times.
        locked: fail if anything differs from ``mobileprep.lock``, instead of warning.
        keep_going: skip targets that cannot be planned, and continue after failures.
        warn: called with each warning about lock files.
    """

    def __init__(
        self,
        recipes: Recipe | FilePath | Iterable[Recipe | FilePath],
        out: FilePath = "out",
        *,
        targets: Sequence[str] = (),
        force: bool = False,
        checksum: bool = False,
        locked: bool = False,
        keep_going: bool = False,
        warn: Warn = as_warning,
    ) -> None:
        self.recipes: Sequence[Recipe] = load_recipes(recipes)
        self.out = Path(out)
        self.faults: Sequence[MobileprepError] = ()
        """Reasons why targets cannot be planned, with ``keep_going``."""
        self._partial: Sequence[str] = ()
        self._targets = names_of(targets)
        self._force = force
        self._checksum = checksum
        self._locked = locked
        self._keep_going = keep_going
        self._warn = warn
        self._state: State | None = None

    def plan(self) -> State:
        """Plan the stages once; raises the same errors as ``build`` does before running stages."""
        if self._state is None:
            try:
                self._state = self._planned(self.recipes)
            except (CorruptFileError, ArtifactError):
                possible, faults = self._plannable() if self._keep_going else ((), ())
                if not (possible and faults):
                    raise
                chosen = {r.name: tuple(r.chosen(self._targets)) for r in self.recipes}
                self._partial = [r.name for r in possible if r.targets != chosen[r.name]]
                self.recipes, self.faults = possible, faults
                self._state = self._planned(possible, whole=False)
            if not self._locked:
                whole = not self._targets and not self.faults
                for text in lock_warnings(self.recipes, self._state, whole=whole):
                    self._warn(text)
        return self._state

    def preview(self) -> list[Verdict]:
        """Predict what ``run`` would do, and why."""
        from mobileprep.building.verdicts import verdicts

        return verdicts(self.plan(), self.out, self._partial)

    @contextlib.contextmanager
    def hold(self, *, wait: bool, tell: Warn) -> Iterator[bool]:
        """Prevent other builds from working on the target directories.

        Args:
            wait: wait for another build instead of raising an ``ArtifactError``.
            tell: called with a message about the wait.

        Yields:
            Whether another build has just ended; then the build is planned again.
        """
        folders = target_folders(self.recipes, self.out, self._targets)
        with folder_locks(folders, wait=wait, tell=tell) as waited:
            if waited:
                self._state = None
                self.plan()
            yield waited

    def run(
        self,
        *,
        jobs: int | None = None,
        listen: Listener = ignore,
        warn: StageWarn | None = None,
        advance: Advance = ignore,
    ) -> BuildRun:
        """Run stale stages and publish the targets, inside ``hold``; see also ``run_build``.

        Args:
            jobs: number of parallel stages; by default the number of processors.
            listen: called when a stage starts or ends.
            warn: called with warnings of stages; by default each is a ``MobileprepWarning``.
            advance: called with the progress of stages.
        """
        return run_build(
            self.plan(),
            self.out,
            jobs=workers_of(jobs),
            listen=listen,
            warn=warn or (lambda task, text: self._warn(f"{task}: {text}" if task else text)),
            advance=advance,
            keep_going=self._keep_going,
            memory=[recipe.memory for recipe in self.recipes],
            partial=self._partial,
        )

    def _planned(self, recipes: Sequence[Recipe], *, whole: bool = True) -> State:
        state = prepared(
            recipes,
            self.out,
            targets=self._targets,
            force=self._force,
            checksum=self._checksum,
        )
        if self._locked:
            check_locks(recipes, state, whole=whole and not self._targets)
        return state

    def _plannable(self) -> tuple[Sequence[Recipe], Sequence[MobileprepError]]:
        """Return recipes with all targets that can be planned, and the errors of the others."""
        from mobileprep.building.plan.portable import plannable

        return plannable(self.recipes, self._targets, lambda some: self._planned(some, whole=False))


class BuildRun(Struct, frozen=True):
    """The result of running a plan.

    Args:
        targets: directories that are up to date now, in the order of the plan.
        ran: stages that ran, in order of completion.
        failures: failures, if ``keep_going`` is set.
        warnings: warnings about pages and the remote cache.
    """

    targets: tuple[BuiltTarget, ...]
    ran: tuple[Ran, ...]
    failures: tuple[MobileprepError, ...]
    warnings: tuple[str, ...]


def run_build(
    state: State,
    out: Path,
    *,
    jobs: int = 1,
    listen: Listener = ignore,
    warn: StageWarn = ignore,
    advance: Advance = ignore,
    keep_going: bool = False,
    memory: Iterable[int | None] = (),
    partial: Collection[str] = (),
) -> BuildRun:
    """Run the stale stages of a plan, and update the directory of each target.

    Args:
        state: the plan and its freshness.
        out: the output directory.
        jobs: number of parallel stages.
        listen: called when a stage starts or ends.
        warn: called with warnings of stages, and if the build fails, with warnings of the remote
            cache, with an empty stage name.
        advance: called with the progress of stages.
        keep_going: continue after failures.
        memory: memory limits of the recipes.
        partial: names of recipes with targets that cannot be planned; their pages stay unchanged.
    """
    bound = store_bound(os.environ)
    executor = Executor(state, listen=listen, warn=warn, advance=advance)
    done: dict[str, BuiltTarget] = {}

    def finish(target: TargetPlan) -> None:
        report, is_changed = publish_target(target, executor, out)
        folder = out.joinpath(*target.folder.split("/"))
        done[target.folder] = BuiltTarget(folder, report, is_changed)

    publishing = [
        FollowUp(t.folder, t.tasks, functools.partial(finish, t)) for t in state.plan.targets
    ]

    def work() -> tuple[list[MobileprepError], list[str]]:
        errors = run_stages(executor, jobs=jobs, keep_going=keep_going, follow_ups=publishing)
        reports = {folder: built.report for folder, built in done.items()}
        return errors, write_pages(executor, out, reports, partial)

    sharing = state.store.sharing
    try:
        if not keep_going:
            _check_writable(state, out)
        with shared_memory(min(jobs, len(stale_stages(state))), memory):
            stage_errors, page_warnings = executor.attempt(work)
            failures = tuple(with_worst_layers(error, executor) for error in stage_errors)
            if sharing is not None:
                sharing.finish()
    except BaseException as error:
        # No result contains the warnings of the remote cache.
        for text in () if sharing is None else sharing.warnings:
            warn("", text)
        if sharing is not None and not isinstance(error, Exception):
            sharing.stop()
        if isinstance(error, MissedLimitError):
            raise with_worst_layers(error, executor) from error
        raise
    finally:
        state.store.files.save()
        state.store.finish(bound)
    targets = tuple(done[t.folder] for t in state.plan.targets if t.folder in done)
    warnings = () if sharing is None else sharing.warnings
    return BuildRun(targets, tuple(executor.ran), failures, (*page_warnings, *warnings))


def _check_writable(state: State, out: Path) -> None:
    """Check that outputs can be published before the first stage runs."""
    stale = {spec.task for spec, _ in stale_stages(state)}
    waiting = [target for target in state.plan.targets if not stale.isdisjoint(target.tasks)]
    for recipe in dict.fromkeys(target.recipe for target in waiting):
        check_page(recipe, out)
    for target in waiting:
        folder = inside(out, target.folder)
        for name in promised_files(target, state):
            check_name(file_inside(folder, name))
        # A missing directory is created in the recipe's directory, which the page check covers.
        if folder.is_dir():
            check_writable(folder / MANIFEST)


def prepared(
    recipes: Sequence[Recipe],
    out: Path,
    *,
    targets: Iterable[str] = (),
    force: bool = False,
    checksum: bool = False,
    cache: Path | None = None,
) -> State:
    """Plan recipes against the cache, and check pins and output directories.

    Args:
        recipes: the recipes.
        out: the output directory.
        targets: names of the targets to build; empty for all.
        force: run every stage again.
        checksum: hash every file instead of trusting unchanged file times.
        cache: directory of the cache; by default the user's cache.
    """
    store = shared_store(recipes, out, checksum=checksum) if cache is None else Store(cache)
    state = plan_state(recipes, targets, store=store, force=force)
    state.hash_inputs()
    check_overlaps(recipes, state.plan, state.store, out)
    state.hash_inputs()
    state.check_outputs(wanted_outputs(state, out))
    return state


def workers_of(jobs: int | None) -> int:
    """Return the number of parallel stages.

    Raises:
        UsageError: ``jobs`` is below 1.
    """
    if jobs is not None and jobs < 1:
        message = f"jobs is {jobs}"
        raise UsageError(message, "give a number from 1 on")
    return jobs or cores()


_QUANTIZER: Final = "quantize_nodes"
# Limits on samples and seconds, because a failed build should end quickly.
_SAMPLES: Final = 8
_SECONDS: Final = 60.0


def with_worst_layers(error: MobileprepError, executor: Executor) -> MobileprepError:
    """Add a hint with the most damaged layers to an error that quantization may have caused.

    Each layer is quantized alone, with few samples and for at most a minute.
    """
    if not isinstance(error, MissedLimitError):
        return error
    target = _quantized(error.task, executor)
    if target is None:
        return error
    from mobileprep.building.quantization_debugging import worst_layers  # imports numpy

    try:
        worst = worst_layers(target, executor, samples=_SAMPLES, seconds=_SECONDS)
    except MobileprepError:
        return error  # the original error is more important
    if not worst.rule:
        return error
    of = "" if worst.measured == worst.layers else f" of the first {worst.measured}"
    hint = (
        f"{error.hint}; or leave the layers in float that lose most, one at a time on "
        f"{worst.samples} samples{of}: under 'quantize', write\n"
        f"    rules: [{worst.rule}]"
    )
    return error.at(error.where, hint=hint)


def _quantized(task: str, executor: Executor) -> TargetPlan | None:
    """Return the target of a stage if its nodes were quantized before that stage."""
    plan = executor.state.plan
    for target in plan.targets:
        if task not in target.tasks:
            continue
        before = target.tasks[: target.tasks.index(task)]
        stages = [plan.stage(one).stage for one in before]
        is_quantized = any(
            isinstance(stage, ChoiceStage)
            or (isinstance(stage, TransformStage) and stage.transform == _QUANTIZER)
            for stage in stages
        )
        return target if is_quantized else None
    return None
