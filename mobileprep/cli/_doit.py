"""Recipes as doit tasks, for a ``dodo.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mobileprep.cli._targets import REPORT, build_report, plan_state, publish_target
from mobileprep.pipeline.doit_tasks import guarded, recipe_files, stage_task, task_name
from mobileprep.pipeline.execute import execute
from mobileprep.pipeline.publish import changes
from mobileprep.pipeline.runner import collect
from mobileprep.pipeline.state import Fresh, State
from mobileprep.plan.spec import TargetPlan
from mobileprep.recipe import load_recipe
from mobileprep.report.json import report_json


def recipe_tasks(folder: Path, out: Path) -> Iterator[dict[str, Any]]:
    """A task for each stage of every recipe below ``folder``, and one for each target's folder.

    Args:
        folder: holds a folder for each recipe, with its ``recipe.yaml``.
        out: the output folder.

    Raises:
        MobileprepError: a recipe is faulty, or a file that it names is missing.
    """
    state = plan_state([load_recipe(path) for path in recipe_files(folder)])
    for spec in state.plan.stages:
        check = _freshness(state, spec.task)
        task = stage_task(spec, guarded(lambda s=spec: _execute(s, state), []), check)  # type: ignore[misc]
        yield {**task, "task_dep": [f"recipe:{name}" for name in task["task_dep"]]}
    for target in state.plan.targets:
        yield _publish_task(target, state, out)


def _execute(spec: Any, state: State) -> None:  # noqa: ANN401
    execute(spec, state)


def _publish_task(target: TargetPlan, state: State, out: Path) -> dict[str, Any]:
    def publish() -> None:
        built = next(b for b in collect(state) if b.target == target)
        publish_target(built, state.store, out)

    def is_current(*_: object) -> bool:
        built = next(b for b in collect(state) if b.target == target)
        return not changes(built, {REPORT: report_json(build_report(built))}, out)

    return {
        "name": f"{target.recipe}/{target.target}",
        "doc": f"the folder of {target.folder}",
        "actions": [guarded(publish, [])],
        "task_dep": [f"recipe:{task_name(task)}" for task in target.tasks],
        "uptodate": [is_current],
    }


def _freshness(state: State, task: str) -> Callable[..., bool]:
    return lambda *_: isinstance(state.verdict(task), Fresh)
