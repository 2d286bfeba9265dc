"""Flags in messages and help string_literals exist for the verbs that they name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import mobileprep
from mobileprep.cli.main import find_verb, parser_of, verb_names
from mobileprep.error_codes import CODES

ROOT = Path(mobileprep.__file__).parent
_FLAG: Final = re.compile(r"(?<![\w,-])--[a-zA-Z][\w-]*")
# Flags of other programs.
_FOREIGN: Final = re.compile(
    r"bazel |-Wl,|--config=|--copt|--linkopt|--fat_apk_cpu|--whole-archive"
)
# Modules outside the command line whose messages are about the flags of certain verbs.
_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "inspection/benchmark_runs.py": ("benchmark",),
    "inspection/differing.py": ("diff",),
    "inspection/drawing_files.py": ("dot",),
    "inspection/summarizing.py": ("summarize",),
    "error_codes.toml": ("run", "tflite"),
    "building/device_measurements.py": ("device",),
    "building/doctor.py": ("doctor",),
    "building/litert_files.py": ("tflite",),
    "building/quantization_debugging.py": ("debug-quantization",),
    "building/verify.py": ("verify",),
    "building/pipeline/": ("build",),
    "building/report/comparison/": ("report",),
    "building/comparing_reports.py": ("report",),
    "freezing/proposal.py": ("init", "summarize"),
    "ops/": ("run", "benchmark"),
    "recipe/": ("build",),
    "runtime/engines/litert_engine.py": ("tflite", "run", "benchmark"),
    "runtime/": ("run", "benchmark"),
}


class Text(NamedTuple):
    """A string literal in the source, with a blank for each value of an f-string."""

    file: str
    line: int
    content: str


def string_literals() -> Iterator[Text]:
    for path in sorted(ROOT.rglob("*.py")):
        if "protos" in path.parts or "documents" in path.parts:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        # Docstrings and parts of f-strings.
        skipped = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        strings = [n for n in ast.walk(tree) if isinstance(n, ast.JoinedStr)]
        skipped |= {id(part) for string in strings for part in string.values}
        for node in ast.walk(tree):
            content = "" if id(node) in skipped else content_of(node)
            if _FLAG.search(content) and " " in content.strip() and not _FOREIGN.search(content):
                yield Text(path.relative_to(ROOT).as_posix(), getattr(node, "lineno", 0), content)
    for entry in CODES:
        if _FLAG.search(entry.fix) and not _FOREIGN.search(entry.fix):
            yield Text("error_codes.toml", int(entry.code[2:]), entry.fix)


def content_of(node: ast.AST) -> str:
    """The value of a string literal, with a blank for each value of an f-string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(p.value if isinstance(p, ast.Constant) else "_" for p in node.values)
    return ""


def flags() -> dict[str, frozenset[str]]:
    """The flags of every verb."""
    parsers = {name: parser_of(find_verb(name)) for name in verb_names()}
    return {
        name: frozenset(flag for action in parser._actions for flag in action.option_strings)
        for name, parser in parsers.items()
    }


FLAGS = flags()
_VERB: Final = re.compile(
    rf"(?:mobileprep |'|`|\b)({'|'.join(sorted(map(re.escape, FLAGS), key=len, reverse=True))})\b"
)


def verbs_meant(text: Text) -> tuple[str, ...]:
    """The verbs whose flags a string may name."""
    named = tuple(dict.fromkeys(_VERB.findall(text.content)))
    own = Path(text.file).stem.replace("_", "-")
    if text.file.startswith("cli/") and own in FLAGS:
        return (*named, own)
    if text.file.startswith("cli/_shared/"):
        return tuple(FLAGS)
    of = next((of for start, of in _OF.items() if text.file.startswith(start)), ())
    return (*named, *of)


@pytest.mark.parametrize("text", list(string_literals()), ids=lambda t: f"{t.file}:{t.line}")
def test_flag_in_a_string_exists(text: Text) -> None:
    meant = verbs_meant(text)
    for flag in _FLAG.findall(text.content):
        if flag in ("--json", "--help"):
            continue  # exists for many verbs
        assert meant, f"{flag} belongs to no verb that {text.content!r} names"
        assert any(flag in FLAGS[verb] for verb in meant), f"{flag} is not a flag of {meant}"
