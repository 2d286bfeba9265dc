"""The stable codes of errors, warnings, and messages of apps, from ``error_codes.toml``."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

GENERAL_WARNING: Final = "MP000"
INTERNAL: Final = "MP970"


class ErrorCode(Struct, frozen=True):
    """One entry of the error reference.

    Args:
        code: ``MP`` and three digits. The first digit is the exit code, 0 for warnings, and 1 for
            messages that an app prints when it loads or runs a model.
        title: a short name of the error.
        cause: why the error occurs.
        fix: what to do.
        patterns: regular expressions that are searched in messages; none for the general code of
            an exit code. The groups ``op``, ``node``, ``attr``, and ``version`` match names.
        recipe: the change to a recipe as YAML; empty if no recipe is involved.
    """

    code: str
    title: str
    cause: str
    fix: str
    patterns: tuple[str, ...] = ()
    recipe: str = ""

    def search(self, text: str) -> re.Match[str] | None:
        """Find the first match of a pattern; None if there is none."""
        return _compiled("|".join(self.patterns)).search(text) if self.patterns else None


_TABLES: Final = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes())
CODES: Final = tuple(
    msgspec.convert({"code": code, **table}, ErrorCode) for code, table in sorted(_TABLES.items())
)


def code_of(message: str, exit_code: int) -> str:
    """The code of an error, or of a warning for the exit code 0; a general code without a match."""
    if exit_code == int(INTERNAL[3:]):
        return INTERNAL
    digit = str(exit_code)
    matches = (e.code for e in CODES if e.code[2] == digit and e.search(message))
    return next(matches, f"MP{digit}00")


def with_code(message: str, exit_code: int) -> str:
    """Append the code of an error, or of a warning for the exit code 0, to its first line."""
    first, end, more = message.partition("\n")
    return f"{first} [{code_of(message, exit_code)}]{end}{more}"


def find_app_message(text: str) -> tuple[ErrorCode, dict[str, str]] | None:
    """The entry of a log line of an app, and the names that the line contains; None if unknown."""
    for entry in CODES:
        match = entry.search(text) if entry.code.startswith("MP1") else None
        if match is not None:
            return entry, {k: v for k, v in match.groupdict().items() if v is not None}
    return None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
