"""Decide whether a command failed to handle hostile files properly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from tests.fuzz.case import Case
from tests.fuzz.limits import MEMORY, Outcome

_MESSAGE = re.compile(r"^error: (.*?)(?:^help: (.*))?\Z", re.DOTALL | re.MULTILINE)
_PLACE = re.compile(r"error: ([^:\n]*\.[^:\n]*): ")
_FRAME = re.compile(r'File "[^"]*/(mobileprep/[^"]+)", line (\d+), in (\S+)')
_WORK_DIR = re.compile(r"/fuzz-[^/\s]+(?:/\d+)?/w\b")
"""The working directory of a command."""
_WARNING = re.compile(r"\.py:\d+: \w*Warning")
_EXIT_CODES = frozenset(range(10))
_USAGE = 2
_RECIPE = 3
_REPORTING = frozenset({"cache", "doctor", "verify"})
"""Verbs that report problems on standard output, with their own exit codes."""
MAX_MESSAGE = 4_000
"""Maximum length of a message, in characters."""
MAX_LIST = 20_000
"""Maximum length of all problems of a recipe, in characters."""


def problems(case: Case, outcome: Outcome) -> list[str]:
    """List the problems of an outcome; equal causes give equal strings."""
    return list(_problems(case, outcome))


def _problems(case: Case, outcome: Outcome) -> Iterator[str]:
    if outcome.timed_out:
        yield f"time: {case.arguments[0]}"
        return
    if outcome.grown > MEMORY:
        yield f"memory: {case.arguments[0]}"
    if outcome.code not in _EXIT_CODES or "Traceback" in outcome.error:
        yield f"code {outcome.code}: {_cause(outcome.error)}"
        return
    if not _is_printable(outcome.error):
        yield f"unprintable errors: {_form(case, outcome)}"
    if not _is_printable(outcome.printed.replace("\t", " ")):
        yield f"unprintable output: {case.arguments[0]}"
    if _WARNING.search(outcome.error):
        yield f"warning: {_digitless(_last_line(outcome.error))}"
    if case.expected and outcome.code:
        yield f"failed: {_form(case, outcome)}"
    elif outcome.wrong_files:
        yield f"wrong files: {case.arguments[0]} {', '.join(map(_kind, outcome.wrong_files))}"
    if outcome.code > 1:
        form = _form(case, outcome)
        yield from (f"{problem}: {form}" for problem in _message_problems(case, outcome))


def _message_problems(case: Case, outcome: Outcome) -> Iterator[str]:
    message = _MESSAGE.search(outcome.error)
    if message is None:
        if case.arguments[0] not in _REPORTING or not names_a_file(case, outcome.printed):
            yield "no message"
        return
    if len(message[0]) > (MAX_LIST if outcome.code == _RECIPE else MAX_MESSAGE):
        yield "long message"
    # Each problem of a recipe has its own help.
    if outcome.code != _RECIPE and not (message[2] or "").strip():
        yield "no help"
    if outcome.code != _USAGE and not names_a_file(case, message[0]):
        yield "no file"


def _is_printable(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def names_a_file(case: Case, message: str) -> bool:
    """Whether a message contains the path of a file or directory of the case."""
    paths = {part for name in case.files for part in (name, name.split("/")[0])}
    paths.update(f"/{PurePath(name).stem}" for name in case.files)  # a checkpoint's prefix
    flags = (a.split("=", 1)[-1].removeprefix("./") for a in case.arguments)
    paths.update(a for a in flags if a)
    place = _PLACE.match(message)
    # A path may be part of an argument, such as a parameter of a transform.
    within = place is not None and any(place[1] in a for a in case.arguments[1:])
    return within or any(p in message for p in paths) or _WORK_DIR.search(message) is not None


def _cause(error: str) -> str:
    """The class of an error, and the last frames in the package."""
    frames = _FRAME.findall(error)
    last = [f"{path}:{line}" for path, line, _ in frames[-2:]]
    return " ".join([*last, _last_line(error.split("error: this is a bug")[0]).split(":")[0]])


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing printed"


def _kind(name: str) -> str:
    return PurePath(name).suffix


def _form(case: Case, outcome: Outcome) -> str:
    """A message without the parts that differ between cases."""
    line = next((x for x in outcome.error.splitlines() if x.startswith("error: ")), "")
    line = re.sub(r"'[^']*'|\"[^\"]*\"", "'_'", line or _last_line(outcome.error))
    return f"{case.arguments[0]} {outcome.code} {_digitless(line)[:160]}"


def _digitless(text: str) -> str:
    return re.sub(r"[\d-]+", "0", text)
