"""Pages, help, messages, and comments avoid the phrases that CONTRIBUTING bans."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from mobileprep.cli.main import find_verb, parser_of, verb_names
from tests.sources import sources

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))

# Each phrase and its replacement.
BANNED = {
    r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|more\b|way\b)": (
        "is not, does not exist, there is no"
    ),
    r"\b(?:is|are|was|were) (?:told|taken|had|let)\b": "an active verb: prints, uses, reads",
    r"\banew\b": "again",
    r"\bat hand\b|\bto be had\b": "available",
    r"\bof before\b": "previous",
    r"\bwhoever\b|\bnobody\b": "the caller, the user, no one",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\beight bits\b|\bfour bits\b": "8-bit, 4-bit",
    r"\bwhat (?:it|they) (?:is|are|has|have|had)\b": "a noun",
    r"\b(?:of|from|with|by|for|to|in) what\b": "a noun",
}
# Quoted code, and the name of a parameter or field before its description.
_CODE = re.compile(r"``[^`]*``|^ *\w+: ")
# Strings without their escapes, or a comment.
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|(?P<comment>#[^\n]*)', re.S
)
_BANNED = {re.compile(pattern, re.IGNORECASE): advice for pattern, advice in BANNED.items()}
_ANY_BANNED = re.compile("|".join(BANNED), re.IGNORECASE)


class Line(NamedTuple):
    """A line of text and its location."""

    place: str
    text: str


def lines_of_pages() -> Iterator[Line]:
    """Lines of Markdown pages outside of code."""
    for page in PAGES:
        text = re.sub(r"^```.*?^ *```$", _blank, page.read_text("utf-8"), flags=re.M | re.S)
        for number, line in enumerate(text.splitlines(), 1):
            yield Line(f"{page.relative_to(ROOT)}:{number}", re.sub(r"`[^`]*`", "``", line))


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def lines_of_help() -> Iterator[Line]:
    """Lines of the help of every verb."""
    for name in verb_names():
        for line in parser_of(find_verb(name)).format_help().splitlines():
            yield Line(f"mobileprep {name} --help", line)


class Code(NamedTuple):
    """Strings that may be messages, and lines of docstrings and comments."""

    messages: tuple[Line, ...]
    comments: tuple[Line, ...]


@cache
def lines_of_code() -> Code:
    messages, comments = [], []
    for path, text, tree in sources():
        if path.endswith("_pb2.py"):
            continue
        place = f"mobileprep/{path}"
        nodes = list(ast.walk(tree))
        documented = set()
        for node in nodes:
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                documented.add(id(node.value))
                if isinstance(node.value.value, str):
                    first = node.value.lineno
                    comments += [
                        Line(f"{place}:{first + offset}", _CODE.sub("", line))
                        for offset, line in enumerate(node.value.value.splitlines())
                    ]
        for node in nodes:
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and id(node) not in documented and " " in node.value:
                messages.append(Line(f"{place}:{node.lineno}", node.value))
        for match in _STRING_OR_COMMENT.finditer(text):
            if match["comment"]:
                number = text.count("\n", 0, match.start()) + 1
                comments.append(Line(f"{place}:{number}", match["comment"]))
    return Code(tuple(messages), tuple(comments))


def problems(lines: Iterable[Line]) -> list[str]:
    """Each banned phrase with its location and its replacement."""
    return [
        f"{line.place}: {match[0]!r}: write {advice}"
        for line in lines
        if _ANY_BANNED.search(line.text)
        for pattern, advice in _BANNED.items()
        if (match := pattern.search(line.text))
    ]


def test_pages_are_in_plain_english() -> None:
    assert problems(lines_of_pages()) == []


def test_help_is_in_plain_english() -> None:
    assert problems(lines_of_help()) == []


def test_messages_are_in_plain_english() -> None:
    assert problems(lines_of_code().messages) == []


def test_docstrings_and_comments_are_in_plain_english() -> None:
    assert problems(lines_of_code().comments) == []


def test_help_shows_no_empty_defaults() -> None:
    empty = [
        line for line in lines_of_help() if re.search(r"default: (None|\[\]|False)", line.text)
    ]
    assert empty == []


@pytest.mark.parametrize(
    "text", ["the file is no graph", "it is built anew", "eight bits", "kept of what it has"]
)
def test_banned_phrases_are_reported(text: str) -> None:
    assert problems((Line("here", text),)) != []


def test_contributing_lists_every_replacement() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Write plain English")[2]
    assert section
    for advice in BANNED.values():
        assert advice in section, advice
