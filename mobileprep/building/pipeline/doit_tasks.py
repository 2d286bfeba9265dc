"""Integration of doit: stages as doit tasks, and doit's runner for a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from doit.cmd_base import TaskLoader2
from doit.cmd_run import Run
from doit.dependency import JsonDB
from doit.exceptions import InvalidDodoFile, TaskFailed
from doit.reporter import ZeroReporter
from doit.task import Task, dict_to_task
from msgspec import Struct

from mobileprep.core.parallel import MOST_THREADS
from mobileprep.error_codes import with_code
from mobileprep.errors import MobileprepError

Work = Callable[[], object]
Check = Callable[..., bool]

_BACKEND: Final = "none"
_REPORTER: Final = "zero"
# Key in doit's database for a task that has run, until the user runs ``doit forget``.
_HAS_RUN: Final = "mobileprep-has-run"


def plain_task(
    name: str, needs: Iterable[str], run: Work, is_fresh: Check | None = None
) -> dict[str, Any]:
    """Create a doit task that runs after others, unless ``is_fresh`` is true when it is due.

    doit tracks no files: it compares neither parameters nor the content of targets.
    """
    return {
        "name": task_name(name),
        "actions": [run],
        "task_dep": sorted(map(task_name, needs)),
        "uptodate": [] if is_fresh is None else [is_fresh],
        # Prevents doit from replacing the output streams and capturing the output of stages.
        "io": {"capture": False},
    }


def task_name(task: str) -> str:
    """Convert a stage name to a doit task name; doit reserves ``=``."""
    return task.replace("=", "_")


def guarded(
    action: Work, name: str, failures: dict[str, BaseException]
) -> Callable[[], TaskFailed | None]:
    """Wrap an action to store its exception in ``failures``; doit would print a traceback."""

    def run() -> TaskFailed | None:
        try:
            action()
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised when doit has stopped
            failures[name] = error
            return TaskFailed(repr(error))
        return None

    return run


class DodoAction(Struct, frozen=True):
    """The action of a ``dodo.py`` task, which makes doit print error messages without tracebacks.

    It can be pickled if ``work`` can.
    """

    work: Work

    def __call__(self) -> TaskFailed | None:
        try:
            self.work()
        except MobileprepError as error:
            return TaskFailed(_failure_text(error))
        return None


class Judge:
    """An ``uptodate`` check for doit, whose string form is the reason why a task is stale.

    doit's database of past runs covers neither parameters nor the content of targets, so mobileprep
    decides. The database only records which tasks have run and were not forgotten.

    Args:
        reasons: returns why the task would run; empty if it is up to date. If it raises an error,
            the task is not up to date, and then fails with that error.
    """

    def __init__(self, reasons: Callable[[], Sequence[str]]) -> None:
        self._reasons = reasons
        self._told: Sequence[str] = ()

    def __call__(self, task: Task, values: Mapping[str, Any]) -> bool:
        """Return whether a task is up to date; doit passes the task and its saved values."""
        task.value_savers.append(_has_run)
        try:
            self._told = self._reasons()
        except MobileprepError as error:
            self._told = [str(error)]
        if not self._told and not values.get(_HAS_RUN):
            self._told = ["doit has not run it before, or has forgotten it"]
        return not self._told

    def __str__(self) -> str:
        return "; ".join(self._told)


def _has_run() -> dict[str, bool]:
    return {_HAS_RUN: True}


def run_tasks(tasks: Iterable[dict[str, Any]], *, jobs: int, keep_going: bool = False) -> bool:
    """Run tasks through doit; return whether all succeeded."""
    listed = [dict_to_task(task) for task in tasks]
    command = _Run(task_loader=_Loader(listed))
    threads = min(jobs, len(listed), MOST_THREADS)
    flags = ["-n", str(threads if threads > 1 else 0), "-P", "thread"]
    code = command.parse_execute([*flags, *(["--continue"] if keep_going else [])])
    return bool(code == 0)


class _Forgetful(JsonDB):  # type: ignore[misc]
    """A doit database that is never written, because doit does not decide freshness."""

    def dump(self) -> None:
        """Write nothing."""


class _Run(Run):  # type: ignore[misc]
    """doit's run command without plugins: other installed packages must not affect a build.

    Searching for plugins would also read the metadata of every installed package three times.
    """

    name = "run"

    def get_backends(self) -> dict[str, type]:
        return {_BACKEND: _Forgetful}

    def get_reporters(self) -> dict[str, type]:
        """Return the silent reporter: the caller reports progress and failures."""
        return {_REPORTER: ZeroReporter}


class _Loader(TaskLoader2):  # type: ignore[misc]
    """A loader that returns existing tasks."""

    def __init__(self, tasks: list[Task]) -> None:
        super().__init__()
        self._tasks = tasks

    def setup(self, opt_values: dict[str, Any]) -> None:
        """Load nothing."""

    def load_doit_config(self) -> dict[str, Any]:
        """Return fixed settings that ignore the user's doit configuration."""
        return {"backend": _BACKEND, "dep_file": "", "reporter": _REPORTER}

    def load_tasks(self, cmd: object, pos_args: list[str]) -> list[Task]:
        return self._tasks


def for_doit(error: MobileprepError) -> InvalidDodoFile:
    """Convert an error so that doit prints its message instead of a traceback."""
    return InvalidDodoFile(_failure_text(error))


def _failure_text(error: MobileprepError) -> str:
    text = with_code(str(error), error.exit_code)
    return f"{text}\nhelp: {error.hint}" if error.hint else text


def recipe_files(folder: Path) -> Iterator[Path]:
    """Yield the recipes of all subdirectories, sorted, or else the recipe of ``folder`` itself."""
    below = sorted(folder.glob("*/recipe.yaml"))
    own = folder / "recipe.yaml"
    yield from below or ([own] if own.is_file() else [])
