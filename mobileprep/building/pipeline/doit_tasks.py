"""The one place that knows doit: stages as doit tasks, and doit's runner for a plan."""

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

from mobileprep.building.plan.spec import StageSpec
from mobileprep.core.parallel import MOST_THREADS
from mobileprep.errors import MobileprepError

Work = Callable[[], object]
Check = Callable[[], bool]

_BACKEND: Final = "none"
_REPORTER: Final = "zero"
# What doit keeps of a task that has run, until it is told to forget the task.
_HAS_RUN: Final = "mobileprep-has-run"


def stage_task(spec: StageSpec, run: Work, is_fresh: Check) -> dict[str, Any]:
    """A stage as a doit task.

    Freshness is ours alone: doit compares neither parameters nor the bytes of targets, so it
    is asked to track no file and takes the answer of ``is_fresh`` for each task's turn.
    """
    return {
        "name": task_name(spec.task),
        "doc": f"{spec.kind} stage",
        "actions": [run],
        "task_dep": sorted({task_name(task) for task in spec.needs}),
        "uptodate": [is_fresh],
        # Else doit would put streams of its own in place of ours, and keep all that stages say.
        "io": {"capture": False},
    }


def follow_up_task(name: str, tasks: Iterable[str], run: Work) -> dict[str, Any]:
    """What is done when some stages have run, as a doit task; it judges itself what to do."""
    return {
        "name": task_name(f"{name}/"),
        "actions": [run],
        "task_dep": sorted({task_name(task) for task in tasks}),
        "io": {"capture": False},
    }


def task_name(task: str) -> str:
    """A stage's name as doit spells it; doit keeps ``=`` for itself."""
    return task.replace("=", "_")


def guarded(
    action: Work, name: str, failures: dict[str, BaseException]
) -> Callable[[], TaskFailed | None]:
    """The action with its exception kept in ``failures``; doit would print a traceback."""

    def run() -> TaskFailed | None:
        try:
            action()
        except MobileprepError as error:
            failures[name] = error
            return TaskFailed(_told(error))
        except Exception as error:  # noqa: BLE001 - raised again, whole, once doit has stopped
            failures[name] = error
            return TaskFailed(repr(error))
        except KeyboardInterrupt as error:
            failures[name] = error
            return TaskFailed("interrupted")
        return None

    return run


class DodoAction(Struct, frozen=True):
    """What a task of a ``dodo.py`` does: doit prints the messages of errors, and no tracebacks.

    It can be handed to another process where ``work`` can.
    """

    work: Work

    def __call__(self) -> TaskFailed | None:
        try:
            self.work()
        except MobileprepError as error:
            return TaskFailed(_told(error))
        return None


class Judge:
    """Tells doit whether a task is up to date, and as a text why it is not.

    doit's own record of past runs tells nothing of parameters or of the bytes of targets, so what
    counts is our own verdict. That record only says which tasks have run and were not forgotten.

    Args:
        reasons: why the task would run; none where it is up to date. What cannot be judged is
            not up to date: the task itself then fails with the message.
    """

    def __init__(self, reasons: Callable[[], Sequence[str]]) -> None:
        self._reasons = reasons
        self._told: Sequence[str] = ()

    def __call__(self, task: Task, values: Mapping[str, Any]) -> bool:
        """doit calls this with the task, and with what it keeps of the task's last run."""
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
    """Run tasks through doit; whether all went well."""
    listed = [dict_to_task(task) for task in tasks]
    command = _Run(task_loader=_Loader(listed))
    threads = min(jobs, len(listed), MOST_THREADS)
    flags = ["-n", str(threads if threads > 1 else 0), "-P", "thread"]
    code = command.parse_execute([*flags, *(["--continue"] if keep_going else [])])
    return bool(code == 0)


class _Forgetful(JsonDB):  # type: ignore[misc]
    """A record of past runs that is never written: freshness is not for doit to judge."""

    def dump(self) -> None:
        """Nothing is kept."""


class _Run(Run):  # type: ignore[misc]
    """doit's run command without its plugins: what is installed beside has no part in a build.

    Looking for plugins would also read the metadata of every installed package three times.
    """

    name = "run"

    def get_backends(self) -> dict[str, type]:
        """The only one there is."""
        return {_BACKEND: _Forgetful}

    def get_reporters(self) -> dict[str, type]:
        """The one that says nothing: progress and failures are told by the caller."""
        return {_REPORTER: ZeroReporter}


class _Loader(TaskLoader2):  # type: ignore[misc]
    """Hands tasks that exist already to doit."""

    def __init__(self, tasks: list[Task]) -> None:
        super().__init__()
        self._tasks = tasks

    def setup(self, opt_values: dict[str, Any]) -> None:
        """Nothing is to be loaded."""

    def load_doit_config(self) -> dict[str, Any]:
        """Our settings; the user's own doit files do not matter here."""
        return {"backend": _BACKEND, "dep_file": "", "reporter": _REPORTER}

    def load_tasks(self, cmd: object, pos_args: list[str]) -> list[Task]:
        """The tasks."""
        return self._tasks


def for_doit(error: MobileprepError) -> InvalidDodoFile:
    """An error that ends doit with its message instead of a traceback."""
    return InvalidDodoFile(_told(error))


def _told(error: MobileprepError) -> str:
    return f"{error}\nhelp: {error.hint}" if error.hint else str(error)


def recipe_files(folder: Path) -> Iterator[Path]:
    """The recipes in the folders within a folder, sorted; where there is none, the folder's own."""
    below = sorted(folder.glob("*/recipe.yaml"))
    own = folder / "recipe.yaml"
    yield from below or ([own] if own.is_file() else [])
