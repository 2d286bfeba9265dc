"""What counts as a failure of a command, however hostile the files that it was given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from tests.fuzz.case import Case
from tests.fuzz.limits import MEMORY, Outcome

_TOLD = re.compile(r"^error: (.*?)(?:^help: (.*))?\Z", re.DOTALL | re.MULTILINE)
_PLACE = re.compile(r"error: ([^:\n]*\.[^:\n]*): ")
_FRAME = re.compile(r'File "[^"]*/(mobileprep/[^"]+)", line (\d+), in (\S+)')
_HERE = re.compile(r"/fuzz-[^/\s]+(?:/\d+)?/w\b")
"""The folder that a command runs in."""
_WARNING = re.compile(r"\.py:\d+: \w*Warning")
_KNOWN_CODES = frozenset(range(10))
_USAGE = 2
_RECIPE = 3
_ANSWERS = frozenset({"cache", "doctor", "verify"})
"""Verbs whose answer, on the standard output, has an exit code of its own: it names the files."""
LONGEST = 4_000
"""Characters of a whole message."""
LONGEST_LIST = 20_000
"""Characters of all problems of a recipe, each on a line."""


def faults(case: Case, outcome: Outcome) -> list[str]:
    """What is wrong with how a command ended, each fault in a form that equal causes share."""
    return list(_faults(case, outcome))


def _faults(case: Case, outcome: Outcome) -> Iterator[str]:
    if outcome.timed_out:
        yield f"time: {case.arguments[0]}"
        return
    if outcome.grown > MEMORY:
        yield f"memory: {case.arguments[0]}"
    if outcome.code not in _KNOWN_CODES or "Traceback" in outcome.error:
        yield f"code {outcome.code}: {_cause(outcome.error)}"
        return
    if not _is_printable(outcome.error):
        yield f"unprintable errors: {_form(case, outcome)}"
    if not _is_printable(outcome.printed.replace("\t", " ")):
        yield f"unprintable answer: {case.arguments[0]}"
    if _WARNING.search(outcome.error):
        yield f"warning: {_digitless(_last_line(outcome.error))}"
    if case.expected and outcome.code:
        yield f"ended: {_form(case, outcome)}"
    elif outcome.falsified:
        yield f"falsified: {case.arguments[0]} {', '.join(map(_kind, outcome.falsified))}"
    if outcome.code > 1:
        yield from (f"{fault}: {_form(case, outcome)}" for fault in _bad_message(case, outcome))


def _bad_message(case: Case, outcome: Outcome) -> Iterator[str]:
    told = _TOLD.search(outcome.error)
    if told is None:
        if case.arguments[0] not in _ANSWERS or not names_a_file(case, outcome.printed):
            yield "no message"
        return
    if len(told[0]) > (LONGEST_LIST if outcome.code == _RECIPE else LONGEST):
        yield "long message"
    # A recipe's problems each have their mend beside them.
    if outcome.code != _RECIPE and not (told[2] or "").strip():
        yield "no mend"
    if outcome.code != _USAGE and not names_a_file(case, told[0]):
        yield "no file"


def _is_printable(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


def names_a_file(case: Case, message: str) -> bool:
    """Whether a message has the path of a file or folder of the case."""
    paths = {part for name in case.files for part in (name, name.split("/")[0])}
    paths.update(f"/{PurePath(name).stem}" for name in case.files)  # a checkpoint's prefix
    flags = (a.split("=", 1)[-1].removeprefix("./") for a in case.arguments)
    paths.update(a for a in flags if a)
    place = _PLACE.match(message)
    # A file may stand inside an argument, as of a transform.
    within = place is not None and any(place[1] in a for a in case.arguments[1:])
    return within or any(p in message for p in paths) or _HERE.search(message) is not None


def _cause(error: str) -> str:
    """Where an error came from: the last frames in the package, and its class."""
    frames = _FRAME.findall(error)
    last = [f"{path}:{line}" for path, line, _ in frames[-2:]]
    return " ".join([*last, _last_line(error.split("error: this is a bug")[0]).split(":")[0]])


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing printed"


def _kind(name: str) -> str:
    return PurePath(name).suffix


def _form(case: Case, outcome: Outcome) -> str:
    """A message without what differs from case to case."""
    told = next((x for x in outcome.error.splitlines() if x.startswith("error: ")), "")
    told = re.sub(r"'[^']*'|\"[^\"]*\"", "'_'", told or _last_line(outcome.error))
    return f"{case.arguments[0]} {outcome.code} {_digitless(told)[:160]}"


def _digitless(text: str) -> str:
    return re.sub(r"[\d-]+", "0", text)
