"""The one place that knows doit: stages as doit tasks, and doit's runner for a plan."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from doit.cmd_base import TaskLoader2
from doit.doit_cmd import DoitMain
from doit.exceptions import TaskFailed
from doit.task import Task, dict_to_task

from mobileprep.errors import MobileprepError
from mobileprep.plan.spec import StageSpec

Action = Callable[[], None]
Check = Callable[[], bool]


def stage_task(spec: StageSpec, run: Action, is_fresh: Check) -> dict[str, Any]:
    """A stage as a doit task.

    Freshness is ours alone: doit compares neither parameters nor the bytes of targets, so it
    is asked to track no file and takes the answer of ``is_fresh`` for each task's turn.
    """
    return {
        "name": task_name(spec.task),
        "doc": f"{spec.stage} stage",
        "actions": [run],
        "task_dep": sorted({task_name(up.task) for up in spec.upstream.values()}),
        "uptodate": [is_fresh],
        "verbosity": 2,
    }


def task_name(task: str) -> str:
    """A stage's name as doit spells it; doit keeps ``=`` for itself."""
    return task.replace("=", "_")


def guarded(action: Action, failures: list[BaseException]) -> Callable[[], TaskFailed | None]:
    """The action with its exceptions kept in ``failures``; doit would print their tracebacks."""

    def run() -> TaskFailed | None:
        try:
            action()
        except (MobileprepError, KeyboardInterrupt) as error:
            failures.append(error)
            return TaskFailed(str(error))
        except Exception as error:  # noqa: BLE001 - raised again, whole, once doit has stopped
            failures.append(error)
            return TaskFailed(repr(error))
        return None

    return run


def run_tasks(tasks: Iterable[dict[str, Any]], *, jobs: int) -> None:
    """Run tasks through doit; what failed is in the tasks' own lists afterwards."""
    listed = [dict_to_task(task) for task in tasks]
    with tempfile.TemporaryDirectory(prefix="mobileprep-") as folder:
        # doit's own record of past runs is not used, so it lives no longer than the run.
        config = {
            "dep_file": os.path.join(folder, "doit.json"),  # noqa: PTH118 - doit wants text
            "backend": "json",
            "reporter": "zero",
        }
        loader = _Loader(listed, config)
        main = DoitMain(loader, config_filenames=(), extra_config={"GLOBAL": {}})
        main.run(["run", "-n", str(jobs if jobs > 1 else 0), "-P", "thread"])


class _Loader(TaskLoader2):  # type: ignore[misc]
    """Hands tasks that exist already to doit."""

    def __init__(self, tasks: list[Task], config: dict[str, Any]) -> None:
        super().__init__()
        self._tasks = tasks
        self._config = config

    def setup(self, opt_values: dict[str, Any]) -> None:
        """Nothing is to be loaded."""

    def load_doit_config(self) -> dict[str, Any]:
        """Our settings; the user's own doit files do not matter here."""
        return self._config

    def load_tasks(self, cmd: object, pos_args: list[str]) -> list[Task]:
        """The tasks."""
        return self._tasks


def recipe_files(folder: Path) -> Iterator[Path]:
    """The recipes below a folder, each in a folder of its own, sorted."""
    yield from sorted(folder.glob("*/recipe.yaml"))
