"""Recipes as doit tasks, for a ``dodo.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from mobileprep.api.paths import FilePath
from mobileprep.api.targets import plan_state, publish_target, target_changes
from mobileprep.errors import MobileprepError
from mobileprep.fsio import inside
from mobileprep.pipeline.doit_tasks import (
    for_doit,
    guarded,
    recipe_files,
    stage_task,
    task_name,
)
from mobileprep.pipeline.execute import execute
from mobileprep.pipeline.folder_lock import folder_locks
from mobileprep.pipeline.overlaps import check_overlaps
from mobileprep.pipeline.runner import collect_target
from mobileprep.pipeline.state import Fresh, State
from mobileprep.plan.spec import StageSpec, TargetPlan
from mobileprep.recipe import load_recipe


def recipe_tasks(recipes: FilePath, out: FilePath = "out") -> Iterator[dict[str, Any]]:
    """Recipes as doit tasks: one for each stage, and one for each target's folder.

    A ``dodo.py`` yields them from its ``task_recipe``: tasks wait for others by that name.
    Warnings of stages go to the standard error stream.

    Args:
        recipes: a recipe's file, or a folder that holds a folder for each recipe, with its
            ``recipe.yaml``.
        out: the folder for outputs; it gets a folder for each recipe and in it one a target.

    Raises:
        doit.exceptions.InvalidDodoFile: a recipe is faulty, or a file that it names is missing;
            doit ends with its message.
    """
    place, out = Path(recipes), Path(out)
    files = [place] if place.is_file() else recipe_files(place)
    yield from _tasks(files, out)


def _tasks(files: Iterable[Path], out: Path) -> Iterator[dict[str, Any]]:
    try:
        recipes = [load_recipe(path) for path in files]
        state = plan_state(recipes)
        check_overlaps(recipes, state.plan, state.store, out)
    except MobileprepError as error:
        raise for_doit(error) from error
    for spec in state.plan.stages:
        run = guarded(_running(spec, state), [])
        task = stage_task(spec, run, _when(lambda s=spec: _is_fresh(s, state)))  # type: ignore[misc]
        yield {**task, "task_dep": [f"recipe:{name}" for name in task["task_dep"]]}
    for target in state.plan.targets:
        yield _publish_task(target, state, out)


def _publish_task(target: TargetPlan, state: State, out: Path) -> dict[str, Any]:
    def publish() -> None:
        # Only here: doit's tasks have no end in common at which locks taken earlier could go.
        with folder_locks([inside(out, target.folder)], wait=True, tell=_tell):
            publish_target(collect_target(target, state), state.store, out)

    def is_current() -> bool:
        todo, _ = target_changes(collect_target(target, state), out)
        return not todo

    return {
        "name": f"{target.recipe}/{target.target}",
        "doc": f"the folder of {target.folder}",
        "actions": [guarded(publish, [])],
        "task_dep": [f"recipe:{task_name(task)}" for task in target.tasks],
        "uptodate": [_when(is_current)],
    }


def _running(spec: StageSpec, state: State) -> Callable[[], None]:
    def run() -> None:
        execute(spec, state, lambda text: _warn(spec.task, text))

    return run


def _warn(task: str, text: str) -> None:
    # doit runs this as an action: there is no caller that could be told instead.
    sys.stderr.write(f"mobileprep: warning: {task}: {text}\n")


def _tell(sentence: str) -> None:
    sys.stderr.write(f"mobileprep: {sentence}\n")


def _is_fresh(spec: StageSpec, state: State) -> bool:
    return isinstance(state.verdict(spec.task), Fresh)


def _when(check: Callable[[], bool]) -> Callable[..., bool]:
    """A check for doit, which calls it with the task and its past values.

    What cannot be judged is not fresh: the task itself then fails with the message.
    """

    def judge(*_: object) -> bool:
        try:
            return check()
        except MobileprepError:
            return False

    return judge
