"""Convert recipes to doit tasks for a ``dodo.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from mobileprep.building.pages import is_page, page_files, page_reasons, remove_page, write_page
from mobileprep.building.pipeline.doit_tasks import (
    DodoAction,
    Judge,
    for_doit,
    recipe_files,
    task_name,
)
from mobileprep.building.pipeline.execute import Executor
from mobileprep.building.pipeline.locks import folder_locks
from mobileprep.building.pipeline.overlaps import check_overlaps
from mobileprep.building.pipeline.publish import from_here, listed, unpublish
from mobileprep.building.pipeline.runner import collect_target
from mobileprep.building.plan.spec import Plan, StageSpec, TargetPlan
from mobileprep.building.targets import (
    build_report,
    plan_state,
    promised_files,
    publish_target,
    shared_store,
)
from mobileprep.building.verdicts import folder_verdict, forecast_of, stage_verdict
from mobileprep.core.arguments import FilePath
from mobileprep.core.files import inside
from mobileprep.error_codes import with_code
from mobileprep.errors import MobileprepError, UsageError
from mobileprep.recipe.load import check_names, load_recipe


def recipe_tasks(
    recipes: FilePath, out: FilePath = "out", *, name: str = "recipe"
) -> Iterator[dict[str, Any]]:
    """Yield doit tasks for recipes: one for each stage, target directory, and page.

    A ``dodo.py`` yields them from a task function. Tasks of stages list their input files as
    ``file_dep``, and tasks of directories list their files as ``targets``, so that other tasks can
    produce inputs and use outputs. Warnings of stages are written to stderr.

    Args:
        recipes: a recipe file, a directory with a ``recipe.yaml``, or a directory with a
            subdirectory for each recipe.
        out: the output directory, with a subdirectory for each recipe and target.
        name: prefix of the tasks' names: ``recipe:digits/phone``.

    Raises:
        doit.exceptions.InvalidDodoFile: there is no recipe, a recipe is invalid, or an input file
            is missing; doit prints the message.
    """
    try:
        session = _Session(_files(Path(recipes)), Path(out))
    except MobileprepError as error:
        raise for_doit(error) from error
    for spec in session.state.plan.stages:
        yield _stage_task(spec, session, name)
    for target in session.state.plan.targets:
        yield _folder_task(target, session, name)
    for recipe, page in page_files(session.state.plan, session.out).items():
        yield _page_task(recipe, page, session, name)


def _files(place: Path) -> tuple[Path, ...]:
    if place.is_file():
        return (place,)
    files = tuple(recipe_files(place))
    if not files:
        message = (
            "neither it nor a folder in it has a recipe.yaml" if place.is_dir() else "is missing"
        )
        raise UsageError(message, "recipe_tasks takes a recipe, or a folder of recipes", str(place))
    return files


def _check_tasks(plan: Plan) -> None:
    """Reject names that would identify two tasks in doit."""
    stages = {task_name(spec.task) for spec in plan.stages}
    for target in plan.targets:
        if task_name(target.folder) in stages:
            message = f"the target {target.folder!r} is named as a stage of its recipe is"
            raise UsageError(message, "doit identifies tasks by name; use another name")


def _warn(task: str, text: str) -> None:
    # doit runs stages as actions, so there is no caller that could receive warnings.
    sys.stderr.write(f"warning: {with_code(f'{task}: {text}', 0)}\n")


def _print_message(sentence: str) -> None:
    sys.stderr.write(f"note: {sentence}\n")


class _Session:
    """Planned recipes that all their tasks share.

    A process that doit starts receives only the paths and plans the recipes itself, because the
    file state is valid only in the process that determined it.
    """

    def __init__(self, files: tuple[Path, ...], out: Path) -> None:
        recipes = [load_recipe(path) for path in files]
        check_names(recipes)
        self.files = files
        self.out = out
        self.state = plan_state(recipes, store=shared_store(recipes, out))
        self.executor = Executor(self.state, warn=_warn)
        check_overlaps(recipes, self.state.plan, self.state.store, out)
        _check_tasks(self.state.plan)

    def __reduce__(self) -> tuple[type[_Session], tuple[tuple[Path, ...], Path]]:
        return _Session, (self.files, self.out)

    def target(self, folder: str) -> TargetPlan:
        return next(t for t in self.state.plan.targets if t.folder == folder)

    def targets(self, recipe: str) -> list[TargetPlan]:
        return [t for t in self.state.plan.targets if t.recipe == recipe]


# doit may pickle the functions below for other processes.


def _run_stage(session: _Session, task: str) -> None:
    executor = session.executor
    executor.attempt(lambda: executor.run(executor.state.spec(task)))


def _stage_reasons(session: _Session, task: str) -> Sequence[str]:
    state = session.state
    forecast = forecast_of(state.verdicts([task]))
    return stage_verdict(state.plan.stage(task), state, forecast).reasons


def _publish(session: _Session, folder: str) -> None:
    # Lock only here, because doit's tasks have no common end at which to release earlier locks.
    with folder_locks([inside(session.out, folder)], wait=True, tell=_print_message):
        target = session.target(folder)
        session.executor.attempt(lambda: publish_target(target, session.executor, session.out))
    session.state.store.files.save()


def _folder_reasons(session: _Session, folder: str) -> Sequence[str]:
    target = session.target(folder)
    forecast = forecast_of(session.state.verdicts(target.tasks))
    return folder_verdict(target, session.state, session.out, forecast).reasons


def _write_page(session: _Session, recipe: str) -> None:
    """Write the page of a recipe whose directories are up to date."""
    state, targets = session.state, session.targets(recipe)

    def write() -> Sequence[str]:
        built = [collect_target(target, state, session.executor) for target in targets]
        reports = {one.target.folder: build_report(one) for one in built}
        return write_page(session.executor, recipe, reports, session.out)

    folders = [inside(session.out, target.folder) for target in targets]
    with folder_locks(folders, wait=True, tell=_print_message):
        warnings = session.executor.attempt(write)
    for text in warnings:
        sys.stderr.write(f"warning: {with_code(text, 0)}\n")
    state.store.files.save()


def _page_reasons(session: _Session, recipe: str) -> Sequence[str]:
    return page_reasons(session.state, recipe, session.out)


class _CleanPage(Struct, frozen=True):
    """A ``clean`` action that removes the page of a recipe."""

    page: Path

    def __call__(self, *, dryrun: bool) -> None:
        if is_page(self.page):
            sys.stdout.write(f"removing file '{self.page}'\n")
            if not dryrun:
                remove_page(self.page.parent, _print_message)

    def __repr__(self) -> str:
        return _shown(f"remove the page {self.page}", self)


class _Clean(Struct, frozen=True):
    """A ``clean`` action that removes the files in the manifest of a target's directory."""

    out: Path
    folder: str

    def __call__(self, *, dryrun: bool) -> None:
        folder = inside(self.out, self.folder)
        for name in sorted(listed(folder)):
            sys.stdout.write(f"removing file '{self.out / self.folder / name}'\n")
        if not dryrun:
            unpublish(folder)

    def __repr__(self) -> str:
        return _shown(f"remove the files of the manifest in {self.out / self.folder}", self)


def _shown(work: str, action: object) -> str:
    """Format an action like a function's repr, because doit prints the part before " at 0x"."""
    return f"<{work} at {id(action):#x}>"


def _stage_task(spec: StageSpec, session: _Session, name: str) -> dict[str, Any]:
    return {
        "basename": name,
        "name": task_name(spec.task),
        "doc": f"{spec.kind} stage",
        "actions": [DodoAction(partial(_run_stage, session, spec.task))],
        "task_dep": [f"{name}:{task_name(task)}" for task in sorted(spec.needs)],
        "file_dep": sorted({from_here(file.path) for file in spec.input_files}),
        "uptodate": [Judge(partial(_stage_reasons, session, spec.task))],
    }


def _folder_task(target: TargetPlan, session: _Session, name: str) -> dict[str, Any]:
    folder = session.out / target.folder
    return {
        "basename": name,
        "name": task_name(target.folder),
        "doc": f"the folder of {target.folder}",
        "actions": [DodoAction(partial(_publish, session, target.folder))],
        "task_dep": [f"{name}:{task_name(task)}" for task in target.tasks],
        "targets": [str(folder / file) for file in promised_files(target, session.state)],
        "uptodate": [Judge(partial(_folder_reasons, session, target.folder))],
        "clean": [_Clean(session.out, target.folder)],
    }


def _page_task(recipe: str, page: Path, session: _Session, name: str) -> dict[str, Any]:
    folders = [target.folder for target in session.targets(recipe)]
    return {
        "basename": name,
        "name": task_name(f"{recipe}/{page.name}"),
        "doc": f"the report page of {recipe}",
        "actions": [DodoAction(partial(_write_page, session, recipe))],
        "task_dep": [f"{name}:{task_name(folder)}" for folder in folders],
        "targets": [str(session.out / recipe / page.name)],
        "uptodate": [Judge(partial(_page_reasons, session, recipe))],
        "clean": [_CleanPage(session.out / recipe / page.name)],
    }
