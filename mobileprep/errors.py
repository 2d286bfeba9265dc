"""Errors: each class has an exit code, and each error a location, a message, and a hint."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

_Error = TypeVar("_Error", bound="MobileprepError")

# Maximum number of candidates that are compared in full.
_MANY = 1000
# Maximum number of names in a message, and of characters in each name.
_MOST_NAMES = 20
_LONGEST_NAME = 60


class MobileprepError(Exception):
    """Base class of the errors of mobileprep.

    Args:
        message: the problem, in one sentence.
        hint: the fix, in one sentence.
        where: the location, such as ``recipe.yaml:4:3`` or ``model.pb, byte 120``.

    All arguments are positional with defaults, so that instances survive pickling.
    """

    exit_code = 70
    subject = ""
    """Files that the command line names, for errors that do not name a file."""

    def __init__(self, message: str = "", hint: str = "", where: str = "") -> None:
        super().__init__(message, hint, where)
        self.message = message
        self.hint = hint
        self.where = where

    @property
    def code(self) -> str:
        """Code in the error reference, such as ``MP401``."""
        from mobileprep.error_codes import code_of  # only failures need it

        return code_of(self.message, self.exit_code)

    def at(self: _Error, where: str, *, message: str = "", hint: str = "") -> _Error:
        """Return the error with another location, and optionally another message or hint."""
        return type(self)(message or self.message, hint or self.hint, where)

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class UsageError(MobileprepError):
    """Invalid command line or arguments."""

    exit_code = 2


class RecipeError(MobileprepError):
    """Invalid recipes.

    ``message`` contains one problem per line, each with its own ``file:line:column``.
    """

    exit_code = 3


class CorruptFileError(MobileprepError):
    """A file that is missing, unreadable, truncated, or of another format."""

    exit_code = 4


class NotDownloadedError(CorruptFileError):
    """A Git LFS pointer instead of the content of a file."""


class InvalidGraphError(MobileprepError):
    """A graph that parses but breaks a rule: a missing input, a cycle, a duplicate name."""

    exit_code = 5


class RunLimitError(InvalidGraphError):
    """A run that exceeds a limit."""


class MemoryLimitError(RunLimitError):
    """A node that exceeds the memory limit of a run."""


class WorkLimitError(RunLimitError):
    """A node that exceeds the FLOP limit of a run."""


class LoopLimitError(RunLimitError):
    """Loops that exceed the iteration limit of a run."""


class UnsupportedError(MobileprepError):
    """An op, dtype, or format that is not supported; the message names it."""

    exit_code = 6


class TransformError(MobileprepError):
    """A transform that cannot be applied to a graph."""

    exit_code = 7


class AccuracyError(MobileprepError):
    """Failed calibration or validation, or an exceeded limit of accuracy or size."""

    exit_code = 8


class MissedLimitError(AccuracyError):
    """A published model that differs more from its source than the recipe allows.

    Args:
        message, hint, where: see ``MobileprepError``.
        task: task name of the stage that found it.
    """

    def __init__(self, message: str = "", hint: str = "", where: str = "", task: str = "") -> None:
        super().__init__(message, hint, where)
        self.args = (message, hint, where, task)
        self.task = task


class ArtifactError(MobileprepError):
    """An output that could not be written."""

    exit_code = 9


class InternalError(MobileprepError):
    """A bug in mobileprep."""

    exit_code = 70


class MobileprepWarning(UserWarning):
    """A problem that does not stop a command, in one sentence."""


def did_you_mean(name: str, candidates: Iterable[str], *, count: int = 1) -> list[str]:
    """Return the ``count`` candidates that are most similar to ``name``, best first."""
    import difflib  # slow to import, and only failures need it
    import heapq

    listed = list(candidates)
    if len(listed) > _MANY:
        # A full comparison is slow; a typo keeps most of the start or end of a name.
        listed = heapq.nlargest(_MANY, listed, key=lambda known: _shared_ends(name, known))
    return difflib.get_close_matches(name, listed, n=count, cutoff=0.5)


def _shared_ends(a: str, b: str) -> int:
    """Count the characters that two names share at their start and end."""
    pairs = ((a, b), (a[::-1], b[::-1]))
    return sum(len(os.path.commonprefix(pair)) for pair in pairs)  # noqa: RUF071 - not paths


def nearest_hint(name: str, candidates: Iterable[str]) -> str:
    """Return a hint with the closest candidate; empty if none is similar."""
    near = did_you_mean(name, candidates)
    return f"did you mean {near[0]!r}?" if near else ""


def named(names: Iterable[str]) -> str:
    """Format names for a message on one line, at most 20; ``none`` if there are none."""
    listed = list(names)
    shown = [_on_one_line(name) for name in listed[:_MOST_NAMES]]
    if len(listed) > _MOST_NAMES:
        shown.append(f"and {len(listed) - _MOST_NAMES:,} more")
    return ", ".join(shown) or "none"


def _on_one_line(name: str) -> str:
    shown = name if name.isprintable() else repr(name)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 3]}..."
