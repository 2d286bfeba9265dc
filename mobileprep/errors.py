"""Errors: each class has an exit code, and each error a location, a message, and a hint."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

_Error = TypeVar("_Error", bound="MobileprepError")

# Candidates beyond which only the likeliest are compared in full.
_MANY = 1000
# Number of names in a message, and of characters in each.
_MOST_NAMES = 20
_LONGEST_NAME = 60


class MobileprepError(Exception):
    """Base of everything that a user's input can cause.

    Args:
        message: the problem, in one sentence.
        hint: the fix, in one sentence.
        where: the place, such as ``recipe.yaml:4:3`` or ``model.pb, byte 120``.

    All arguments are positional with defaults, so that instances survive pickling.
    """

    exit_code = 70
    subject = ""
    """Files that the command line names, for errors that name no file."""

    def __init__(self, message: str = "", hint: str = "", where: str = "") -> None:
        super().__init__(message, hint, where)
        self.message = message
        self.hint = hint
        self.where = where

    @property
    def code(self) -> str:
        """The code of the error in the error reference, such as ``MP401``."""
        from mobileprep.error_codes import code_of  # only failures need it

        return code_of(self.message, self.exit_code)

    def at(self: _Error, where: str, *, message: str = "", hint: str = "") -> _Error:
        """Return the error with another location, and optionally another message or hint."""
        return type(self)(message or self.message, hint or self.hint, where)

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


class UsageError(MobileprepError):
    """A command line that cannot be understood."""

    exit_code = 2


class RecipeError(MobileprepError):
    """One recipe, or several places of one, that cannot be built.

    ``message`` holds one problem a line, each with its own ``file:line:column``.
    """

    exit_code = 3


class CorruptFileError(MobileprepError):
    """A file that is missing, unreadable, truncated, or of another format."""

    exit_code = 4


class NotDownloadedError(CorruptFileError):
    """A pointer of Git LFS in the place of a file."""


class InvalidGraphError(MobileprepError):
    """A graph that parses but breaks a rule: a missing input, a cycle, a duplicate name."""

    exit_code = 5


class RunLimitError(InvalidGraphError):
    """A node that would take more than a run may."""


class MemoryLimitError(RunLimitError):
    """A node that would take more memory than a run may."""


class WorkLimitError(RunLimitError):
    """A node that would take more arithmetic than a run may."""


class LoopLimitError(RunLimitError):
    """Loops that make more iterations than those of a run may."""


class UnsupportedError(MobileprepError):
    """An op, a dtype or a format that is not supported; the message names it."""

    exit_code = 6


class TransformError(MobileprepError):
    """A transform that cannot do its work on this graph."""

    exit_code = 7


class AccuracyError(MobileprepError):
    """Calibration or validation failed, or a budget of accuracy or size was missed."""

    exit_code = 8


class MissedLimitError(AccuracyError):
    """A model that ships is further from its source than the recipe allows.

    Args:
        message, hint, where: see ``MobileprepError``.
        task: the stage's that found it.
    """

    def __init__(self, message: str = "", hint: str = "", where: str = "", task: str = "") -> None:
        super().__init__(message, hint, where)
        self.args = (message, hint, where, task)
        self.task = task


class ArtifactError(MobileprepError):
    """An output that could not be written."""

    exit_code = 9


class InternalError(MobileprepError):
    """A rule of our own code is broken: our bug, never the user's."""

    exit_code = 70


class MobileprepWarning(UserWarning):
    """A problem that did not prevent the work, in one sentence."""


def did_you_mean(name: str, candidates: Iterable[str], *, count: int = 1) -> list[str]:
    """The ``count`` names among ``candidates`` that look most like ``name``, best first."""
    import difflib  # costs start-up time, and only failures need it
    import heapq

    listed = list(candidates)
    if len(listed) > _MANY:
        # A full comparison takes its time; a slip leaves most of a name's ends as they are.
        listed = heapq.nlargest(_MANY, listed, key=lambda known: _shared_ends(name, known))
    return difflib.get_close_matches(name, listed, n=count, cutoff=0.5)


def _shared_ends(a: str, b: str) -> int:
    """How many characters two names begin and end with in common."""
    pairs = ((a, b), (a[::-1], b[::-1]))
    return sum(len(os.path.commonprefix(pair)) for pair in pairs)  # noqa: RUF071 - not of paths


def nearest_hint(name: str, candidates: Iterable[str]) -> str:
    """A hint sentence naming the nearest candidate, or an empty text when none is near."""
    near = did_you_mean(name, candidates)
    return f"did you mean {near[0]!r}?" if near else ""


def named(names: Iterable[str]) -> str:
    """The names that a file has, for a message: the first, on one line; ``none`` without any."""
    listed = list(names)
    shown = [_on_one_line(name) for name in listed[:_MOST_NAMES]]
    if len(listed) > _MOST_NAMES:
        shown.append(f"and {len(listed) - _MOST_NAMES:,} more")
    return ", ".join(shown) or "none"


def _on_one_line(name: str) -> str:
    shown = name if name.isprintable() else repr(name)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 3]}..."
