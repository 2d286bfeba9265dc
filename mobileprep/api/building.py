"""Recipes to the folders that apps ship."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mobileprep.api.lock import check_locks
from mobileprep.api.paths import FilePath, Warn, as_warning
from mobileprep.api.recipes import check_names, load_recipe, target_folders
from mobileprep.api.targets import plan_state, publish_target
from mobileprep.errors import UsageError
from mobileprep.pipeline.folder_lock import folder_locks
from mobileprep.pipeline.overlaps import check_overlaps
from mobileprep.pipeline.runner import build as run_stages
from mobileprep.pipeline.runner import collect
from mobileprep.pipeline.state import State
from mobileprep.recipe.model import Recipe
from mobileprep.report.collect import Report


@dataclass(frozen=True)
class BuiltTarget:
    """The folder of a target.

    Args:
        folder: where its files are; ``manifest.json`` there lists them with their digests.
        report: sizes, costs, what each transform did, how far outputs moved.
        is_changed: whether anything was written there.
    """

    folder: Path
    report: Report
    is_changed: bool


@dataclass(frozen=True)
class Build:
    """What a build did.

    Args:
        targets: their folders, in the order of the recipes.
        ran: the names of the stages that ran; empty where all was fresh.
    """

    targets: tuple[BuiltTarget, ...]
    ran: tuple[str, ...]


def build(
    recipes: Recipe | FilePath | Iterable[Recipe | FilePath],
    out: FilePath = "out",
    *,
    targets: Sequence[str] = (),
    jobs: int = 1,
    force: bool = False,
    wait: bool = True,
    locked: bool = False,
    warn: Warn | None = None,
) -> Build:
    """Build recipes: run the stages that are stale, and bring each target's folder up to date.

    Args:
        recipes: one or more, loaded or as files.
        out: the folder for outputs; it gets a folder for each recipe and in it one a target.
        targets: the names of those to build; by default all.
        jobs: how many stages may run at once.
        force: run every stage again.
        wait: wait while another process works on a target's folder; without, that is an error.
        locked: make sure that all is as ``mobileprep.lock`` beside each recipe pins it.
        warn: called with what the user should know; by default it is a ``MobileprepWarning``.

    Raises:
        UsageError: no recipe has such a target, two have one name, or ``jobs`` is below 1.
        RecipeError: a recipe is wrong, see ``load_recipe``.
        CorruptFileError: a file is missing, damaged, or not what the recipe or its lock pins.
        MobileprepError: what a stage raises: InvalidGraphError, UnsupportedError and
            TransformError of the model, AccuracyError of a check, a validation or a budget.
        ArtifactError: an output cannot be written, or would lie where the build reads; or another
            process works on a folder, and ``wait`` is off.
    """
    if jobs < 1:
        message = f"jobs is {jobs}"
        raise UsageError(message, "give a number from 1 on")
    tell = warn or as_warning
    loaded = [r if isinstance(r, Recipe) else load_recipe(r) for r in _listed(recipes)]
    check_names(loaded)
    state = prepared(loaded, Path(out), targets=targets, force=force)
    folders = target_folders(loaded, Path(out), targets)
    with folder_locks(folders, wait=wait, tell=tell) as waited:
        if waited:
            state = prepared(loaded, Path(out), targets=targets, force=force)
        if locked:
            check_locks(loaded, state, whole=not targets)
        ran = run_stages(
            state, jobs=jobs, listen=_nobody, warn=lambda task, text: tell(f"{task}: {text}")
        )
        return Build(tuple(published(state, Path(out))), tuple(stage.task for stage in ran))


def prepared(
    recipes: Sequence[Recipe],
    out: Path,
    *,
    targets: Iterable[str] = (),
    force: bool = False,
    cache: Path | None = None,
) -> State:
    """The plan of some recipes against the store, its pins and folders checked.

    Args:
        recipes: what to plan.
        out: the output folder.
        targets: names of targets, or of their folders; all without any.
        force: judge every stage stale.
        cache: the store's folder; by default the user's.

    Raises:
        UsageError, CorruptFileError: see ``plan_state``.
        ArtifactError: an output folder holds what the build reads.
    """
    state = plan_state(recipes, targets, force=force, cache=cache)
    check_overlaps(recipes, state.plan, state.store, out)
    return state


def published(state: State, out: Path) -> Iterator[BuiltTarget]:
    """Bring the folder of each target of a plan up to date, whose stages are all fresh.

    Raises:
        ArtifactError: a folder cannot be written.
    """
    for built in collect(state):
        report, is_changed = publish_target(built, state.store, out)
        yield BuiltTarget(out.joinpath(*built.target.folder.split("/")), report, is_changed)


def _listed(
    recipes: Recipe | FilePath | Iterable[Recipe | FilePath],
) -> Iterable[Recipe | FilePath]:
    return [recipes] if isinstance(recipes, Recipe | str | os.PathLike) else recipes


def _nobody(task: str, seconds: float | None) -> None:
    """Tells nothing."""
