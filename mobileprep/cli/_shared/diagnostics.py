"""Errors, warnings, and findings of one command, and their GitHub and SARIF formats."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, Literal
from urllib.parse import quote

from msgspec import Struct

from mobileprep import __version__
from mobileprep.errors import MobileprepError

Level = Literal["error", "warning"]
FORMATS: Final = ("text", "json", "github", "sarif")

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
_PAGE: Final = "docs/reference/error-codes.md"
_LOCATED: Final = re.compile(r"(?P<file>[^\s:](?:[^:\n]|:(?!\d))*):(?P<line>\d+):(?P<column>\d+): ")
"""The location at the start of a problem in a recipe or another text file."""
_EXCERPT: Final = re.compile(r" +\d* \| ")
"""A line that quotes the recipe or marks a column; GitHub and SARIF viewers show the file."""


class Diagnostic(Struct, frozen=True):
    """One error, warning, or finding.

    Args:
        level: how severe it is.
        code: its code in the error reference.
        message: the problem.
        help: what to do; empty if unknown.
        file: path of the file; empty if it concerns none.
        line: 1-based line in the file; 0 if unknown.
        column: 1-based column; 0 if unknown.
        node: the node of a graph; empty if it concerns none.
    """

    level: Level
    code: str
    message: str
    help: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    node: str = ""


_collectors: list[list[Diagnostic]] = []
"""Active lists; not a context variable, because threads of stages also warn."""


@contextlib.contextmanager
def collecting() -> Iterator[list[Diagnostic]]:
    """Collect the diagnostics that the command reports inside the block."""
    diagnostics: list[Diagnostic] = []
    _collectors.append(diagnostics)
    try:
        yield diagnostics
    finally:
        _collectors.pop()


def report(diagnostics: Sequence[Diagnostic]) -> None:
    """Add diagnostics if the command collects them."""
    for collected in _collectors:
        collected += diagnostics


def located(level: Level, text: str, code: str = "", hint: str = "") -> Diagnostic:
    """Return the diagnostic of a message that may begin with ``file:line:column: ``."""
    from mobileprep.error_codes import GENERAL_WARNING

    place = _LOCATED.match(text)
    lines = (text[place.end() :] if place else text).split("\n")
    message = "\n".join(line for line in lines if not _EXCERPT.match(line))
    code = code or GENERAL_WARNING
    if place is None:
        return Diagnostic(level, code, message, hint)
    return Diagnostic(
        level, code, message, hint, place["file"], int(place["line"]), int(place["column"])
    )


def diagnostics_of(error: MobileprepError, where: str, hint: str) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of an error: one for each located problem, or one for all."""
    from mobileprep.error_codes import code_of

    problems = split_problems(error.message)
    if problems:
        return tuple(located("error", p, code_of(p, error.exit_code), hint) for p in problems)
    place = _LOCATED.match(f"{where}: ")
    if place is not None:
        return (located("error", f"{where}: {error.message}", error.code, hint),)
    file, _, _ = where.partition(", ")
    return (Diagnostic("error", error.code, error.message, hint, file),)


def split_problems(message: str) -> tuple[str, ...]:
    """Split a message into its located problems; empty unless it starts with a location."""
    problems: list[list[str]] = []
    for line in message.split("\n"):
        if _LOCATED.match(line):
            problems.append([line])
        elif problems:
            problems[-1].append(line)
        else:
            return ()
    return tuple("\n".join(lines) for lines in problems)


def add_output_format(parser: argparse.ArgumentParser, json_help: str) -> None:
    """Add ``--output-format``, and ``--json`` as the short form of its value ``json``."""
    parser.add_argument(
        "--output-format",
        choices=FORMATS,
        default="text",
        help="Format of results; github and sarif print errors, warnings, and findings",
    )
    parser.add_argument(
        "--json",
        action="store_const",
        const="json",
        dest="output_format",
        help=f"{json_help}, as --output-format json",
    )


def requested_format(arguments: Sequence[str]) -> str:
    """Return the output format of an unparsed command line; parsing errors use it, too."""
    chosen = "text"
    for position, word in enumerate(arguments):
        name, _, value = word.partition("=")
        if word == "--json":
            chosen = "json"
        elif name == "--output-format":
            chosen = value or next(iter(arguments[position + 1 :]), "")
    is_help = not {"-h", "--help"}.isdisjoint(arguments)
    return "text" if is_help or chosen not in FORMATS else chosen


def github_lines(diagnostics: Sequence[Diagnostic]) -> Iterator[str]:
    """Yield GitHub workflow commands that annotate files in a pull request."""
    for each in diagnostics:
        fields = {"file": _relative(each.file), "line": each.line, "col": each.column}
        properties = {key: value for key, value in fields.items() if value}
        pairs = [f"{key}={_escaped(str(value), ':,')}" for key, value in properties.items()]
        pairs.append(f"title={each.code}")
        text = _escaped(_with_help(each))
        yield f"::{each.level} {','.join(pairs)}::{text}"


def sarif_text(diagnostics: Sequence[Diagnostic]) -> str:
    """Format diagnostics as a SARIF 2.1.0 log with one run."""
    from mobileprep.error_codes import CODES

    used = {each.code for each in diagnostics}
    rules = [
        {
            "id": entry.code,
            "shortDescription": {"text": entry.title},
            "fullDescription": {"text": entry.cause},
            "help": {"text": entry.fix},
        }
        for entry in CODES
        if entry.code in used
    ]
    driver = {"name": "mobileprep", "version": __version__, "rules": rules}
    results = [_sarif_result(each) for each in diagnostics]
    run = {"tool": {"driver": driver}, "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _sarif_result(each: Diagnostic) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": each.code,
        "level": each.level,
        "message": {"text": _with_help(each)},
    }
    location: dict[str, Any] = {}
    if each.file:
        place: dict[str, Any] = {"artifactLocation": {"uri": _uri(each.file)}}
        if each.line:
            place["region"] = {"startLine": each.line, "startColumn": max(1, each.column)}
        location["physicalLocation"] = place
    if each.node:
        location["logicalLocations"] = [{"fullyQualifiedName": each.node, "kind": "node"}]
    if location:
        result["locations"] = [location]
    return result


def _with_help(each: Diagnostic) -> str:
    return f"{each.message}\nhelp: {each.help}" if each.help else each.message


def _relative(file: str) -> str:
    """Return a path with forward slashes, relative to the working directory if it is below."""
    if not file:
        return ""
    path = PurePath(file)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    return path.as_posix()


def _uri(file: str) -> str:
    """Return the ``file:`` URI of a path, or a relative URI below the working directory."""
    relative = _relative(file)
    return PurePath(relative).as_uri() if PurePath(relative).is_absolute() else quote(relative)


def _escaped(text: str, more: str = "") -> str:
    return "".join(f"%{ord(c):02X}" if c in f"%\r\n{more}" else c for c in text)
