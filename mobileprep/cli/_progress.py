"""Progress of a build on the standard error stream: a bar on a terminal, else a line a stage."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID


class Progress:
    """Tells of stages as they run.

    Args:
        total: how many stages are expected to run; 0 shows nothing.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        if self._total and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress as Bar

            self._bar = Bar(console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=self._total)
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def warn(self, task: str, text: str) -> None:
        """A stage has something to say before it does its work."""
        line = f"mobileprep: warning: {task}: {text}"
        if self._bar is not None:
            self._bar.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            print(line, file=sys.stderr)

    def listen(self, task: str, seconds: float | None) -> None:
        """A stage has started, or is done after some seconds."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=task, advance=0 if seconds is None else 1)
        if seconds is not None and self._bar is None:
            print(f"{task}  {seconds:.2f} s", file=sys.stderr)
