"""Recipes as doit tasks, for a ``dodo.py``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
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
from mobileprep.building.pipeline.folder_lock import folder_locks
from mobileprep.building.pipeline.overlaps import check_overlaps
from mobileprep.building.pipeline.publish import from_here, published_names, unpublish
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
from mobileprep.errors import MobileprepError, UsageError
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.loading import check_names


def recipe_tasks(
    recipes: FilePath, out: FilePath = "out", *, name: str = "recipe"
) -> Iterator[dict[str, Any]]:
    """Recipes as doit tasks: one for each stage, each target's folder, and each page.

    A ``dodo.py`` yields them from a task function. Stages have the files from outside that they
    read as ``file_dep``, folders the files that they get as ``targets``, so that other tasks
    may make the one and take the other. Warnings of stages go to the standard error stream.

    Args:
        recipes: a recipe's file, its folder with a ``recipe.yaml``, or a folder that holds a folder
            for each recipe.
        out: the folder for outputs; it gets a folder for each recipe and in it one a target.
        name: what the tasks' names begin with: ``recipe:digits/phone``.

    Raises:
        doit.exceptions.InvalidDodoFile: there is no recipe, one is faulty, or a file that it names
            is missing; doit ends with its message.
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
    """The recipes at a path."""
    if place.is_file():
        return (place,)
    files = tuple(recipe_files(place))
    if not files:
        found = (
            "neither it nor a folder in it has a recipe.yaml" if place.is_dir() else "is missing"
        )
        raise UsageError(found, "recipe_tasks takes a recipe, or a folder of recipes", str(place))
    return files


def _check_tasks(plan: Plan) -> None:
    """Refuse names that doit would have for two tasks."""
    stages = {task_name(spec.task) for spec in plan.stages}
    for target in plan.targets:
        if task_name(target.folder) in stages:
            message = f"the target {target.folder!r} is named as a stage of its recipe is"
            raise UsageError(message, "doit identifies tasks by name; use another name")


def _warn(task: str, text: str) -> None:
    # doit runs stages as actions: there is no caller that could be told instead.
    sys.stderr.write(f"warning: {task}: {text}\n")


def _tell(sentence: str) -> None:
    sys.stderr.write(f"note: {sentence}\n")


class _Session:
    """Recipes planned against the store, which all their tasks share.

    A process that doit starts anew is given the names alone, and plans them itself: what a state
    knows of files is for the process that looked.
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
        """The target of a folder."""
        return next(t for t in self.state.plan.targets if t.folder == folder)

    def targets(self, recipe: str) -> list[TargetPlan]:
        """The targets of a recipe."""
        return [t for t in self.state.plan.targets if t.recipe == recipe]


class _RunStage(Struct, frozen=True):
    """Runs a stage; one whose outputs are in the store is not worked out again."""

    session: _Session
    task: str

    def __call__(self) -> None:
        executor = self.session.executor
        executor.attempt(lambda: executor.run(executor.state.spec(self.task)))


class _StageReasons(Struct, frozen=True):
    session: _Session
    task: str

    def __call__(self) -> Sequence[str]:
        state = self.session.state
        forecast = forecast_of(state.verdicts([self.task]))
        return stage_verdict(state.plan.stage(self.task), state, forecast).reasons


class _Publish(Struct, frozen=True):
    """Brings a target's folder up to date."""

    session: _Session
    folder: str

    def __call__(self) -> None:
        session = self.session
        # Only here: doit's tasks have no end in common at which locks taken earlier could go.
        with folder_locks([inside(session.out, self.folder)], wait=True, tell=_tell):
            target = session.target(self.folder)
            session.executor.attempt(lambda: publish_target(target, session.executor, session.out))
        session.state.store.files.save()


class _FolderReasons(Struct, frozen=True):
    session: _Session
    folder: str

    def __call__(self) -> Sequence[str]:
        session = self.session
        target = session.target(self.folder)
        forecast = forecast_of(session.state.verdicts(target.tasks))
        return folder_verdict(target, session.state, session.out, forecast).reasons


class _WritePage(Struct, frozen=True):
    """Writes the page of a recipe whose folders are up to date."""

    session: _Session
    recipe: str

    def __call__(self) -> None:
        session = self.session
        state, targets = session.state, session.targets(self.recipe)
        with folder_locks([inside(session.out, t.folder) for t in targets], wait=True, tell=_tell):
            told = session.executor.attempt(lambda: self._write(targets))
        for text in told:
            _tell(f"warning: {text}")
        state.store.files.save()

    def _write(self, targets: Sequence[TargetPlan]) -> Sequence[str]:
        session = self.session
        built = [collect_target(target, session.state, session.executor) for target in targets]
        reports = {one.target.folder: build_report(one) for one in built}
        return write_page(session.executor, self.recipe, reports, session.out)


class _PageReasons(Struct, frozen=True):
    session: _Session
    recipe: str

    def __call__(self) -> Sequence[str]:
        return page_reasons(self.session.state, self.recipe, self.session.out)


class _CleanPage(Struct, frozen=True):
    """Removes the page of a recipe, as ``clean`` does."""

    page: Path

    def __call__(self, *, dryrun: bool) -> None:
        if is_page(self.page):
            sys.stdout.write(f"removing file '{self.page}'\n")
            if not dryrun:
                remove_page(self.page.parent, _tell)

    def __repr__(self) -> str:
        return _shown(f"remove the page {self.page}", self)


class _Clean(Struct, frozen=True):
    """Removes the files that the manifest of a target's folder lists, as ``clean`` does."""

    out: Path
    folder: str

    def __call__(self, *, dryrun: bool) -> None:
        folder = inside(self.out, self.folder)
        for name in published_names(folder):
            sys.stdout.write(f"removing file '{self.out / self.folder / name}'\n")
        if not dryrun:
            unpublish(folder)

    def __repr__(self) -> str:
        return _shown(f"remove the files of the manifest in {self.out / self.folder}", self)


def _shown(work: str, action: object) -> str:
    """An action as Python shows functions: doit tells what stands before the place in memory."""
    return f"<{work} at {id(action):#x}>"


def _stage_task(spec: StageSpec, session: _Session, name: str) -> dict[str, Any]:
    return {
        "basename": name,
        "name": task_name(spec.task),
        "doc": f"{spec.kind} stage",
        "actions": [DodoAction(_RunStage(session, spec.task))],
        "task_dep": [f"{name}:{task_name(task)}" for task in sorted(spec.needs)],
        "file_dep": sorted({from_here(file.path) for file in spec.input_files}),
        "uptodate": [Judge(_StageReasons(session, spec.task))],
    }


def _folder_task(target: TargetPlan, session: _Session, name: str) -> dict[str, Any]:
    folder = session.out / target.folder
    return {
        "basename": name,
        "name": task_name(target.folder),
        "doc": f"the folder of {target.folder}",
        "actions": [DodoAction(_Publish(session, target.folder))],
        "task_dep": [f"{name}:{task_name(task)}" for task in target.tasks],
        "targets": [str(folder / file) for file in promised_files(target, session.state)],
        "uptodate": [Judge(_FolderReasons(session, target.folder))],
        "clean": [_Clean(session.out, target.folder)],
    }


def _page_task(recipe: str, page: Path, session: _Session, name: str) -> dict[str, Any]:
    folders = [target.folder for target in session.targets(recipe)]
    return {
        "basename": name,
        "name": task_name(f"{recipe}/{page.name}"),
        "doc": f"the report page of {recipe}",
        "actions": [DodoAction(_WritePage(session, recipe))],
        "task_dep": [f"{name}:{task_name(folder)}" for folder in folders],
        "targets": [str(session.out / recipe / page.name)],
        "uptodate": [Judge(_PageReasons(session, recipe))],
        "clean": [_CleanPage(session.out / recipe / page.name)],
    }
