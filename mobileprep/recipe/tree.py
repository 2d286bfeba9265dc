"""The recipe as a tree of plain values with their locations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from mobileprep.errors import RecipeError

Key: TypeAlias = str | int
KeyPath: TypeAlias = tuple[Key, ...]
ScalarValue: TypeAlias = str | int | float | bool | None
# A JSON value: dict, list, str, int, float, bool, or None.
Plain: TypeAlias = Any

# Line ends that YAML's scanner counts.
_LINE_END = re.compile("\r\n|[\r\n\x85\u2028\u2029]")
_LONGEST_PATH = 120
_BARE_KEY = re.compile(r"[A-Za-z0-9_$/:-]+\Z")


class SourceText:
    """A recipe file: its name in messages, its directory, and its text."""

    def __init__(self, name: str, folder: Path, text: str) -> None:
        self.name = name
        self.folder = folder
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        """The lines without line ends; line 1 has index 0."""
        return _LINE_END.split(self.text)


class Place(NamedTuple):
    """The location of a key or a value.

    Args:
        source: the file.
        line: line number, starting at 1.
        column: column in characters, starting at 1.
        keys: path of keys and list indices in the file.
    """

    source: SourceText
    line: int
    column: int
    keys: KeyPath = ()

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


class Scalar(NamedTuple):
    """A string, number, boolean, or null.

    Args:
        value: the parsed value.
        text: the text in the file, without quotes.
        plain: whether it is unquoted, so that its text determines its type.
    """

    value: ScalarValue
    place: Place
    text: str = ""
    plain: bool = False


class Sequence(NamedTuple):
    """A list."""

    items: tuple[Node, ...]
    place: Place


class Entry(NamedTuple):
    """The location of a key, and its value."""

    key_place: Place
    value: Node


class MappingNode(NamedTuple):
    """A mapping, in the order written."""

    entries: Mapping[str, Entry]
    place: Place

    def get(self, key: str) -> Node | None:
        """Return the value of a key, or None."""
        entry = self.entries.get(key)
        return entry.value if entry is not None else None

    def items(self) -> Iterator[tuple[str, Entry]]:
        """Return keys and entries."""
        return iter(self.entries.items())

    def nodes(self) -> dict[str, Node]:
        """Return the values by key."""
        return {key: entry.value for key, entry in self.entries.items()}

    def without(self, keys: Iterable[str]) -> MappingNode:
        """Return a copy without some keys."""
        dropped = frozenset(keys)
        entries = {key: entry for key, entry in self.entries.items() if key not in dropped}
        return MappingNode(entries, self.place)


Node: TypeAlias = Scalar | Sequence | MappingNode


def plain(node: Node) -> Plain:
    """Return the plain Python value."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key: plain(child) for key, child in node.nodes().items()}


def find(node: Node, keys: Iterable[Key]) -> Node | None:
    """Return the node at a path, or None if it does not exist."""
    for key in keys:
        child = _child(node, key)
        if child is None:
            return None
        node = child
    return node


def place_of(node: Node, keys: Iterable[Key]) -> Place:
    """Return the location of a path's value, or of the nearest existing parent.

    A value in a mapping has the location of its key.
    """
    place = node.place
    for key in keys:
        child = _child(node, key)
        if child is None:
            return place
        place = child.place
        if isinstance(node, MappingNode) and isinstance(child, MappingNode | Sequence):
            place = node.entries[str(key)].key_place
        node = child
    return place


def key_place(node: MappingNode, *keys: Key) -> Place:
    """Return the location of the key at the end of an existing path."""
    *above, last = keys
    parent = find(node, above)
    assert isinstance(parent, MappingNode)
    return parent.entries[str(last)].key_place


def dotted(keys: KeyPath) -> str:
    """Format a path for messages: ``targets.phone.transforms[1].op``."""
    parts: list[str] = []
    for key in keys:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        elif _BARE_KEY.match(key):
            parts.append(f".{key}" if parts else key)
        else:
            parts.append(f"[{show(key)}]")
    path = "".join(parts)
    return path if len(path) <= _LONGEST_PATH else f"{path[:60]}...{path[-40:]}"


def show(value: object, limit: int = 60) -> str:
    """Format a value for a message: quoted, escaped, and shortened to ``limit``."""
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit + 2 else f"{text[:limit]}..."


def _child(node: Node, key: Key) -> Node | None:
    if isinstance(node, MappingNode) and isinstance(key, str):
        return node.get(key)
    if isinstance(node, Sequence) and isinstance(key, int) and 0 <= key < len(node.items):
        return node.items[key]
    return None


_SHOWN = 100
_SNIPPET_WIDTH = 100


class Problem(NamedTuple):
    """A problem of a recipe.

    Args:
        place: its location.
        message: description of the problem.
        hint: the fix, or empty.
    """

    place: Place
    message: str
    hint: str = ""

    def __str__(self) -> str:
        keys = dotted(self.place.keys)
        text = f"{self.place}: {keys}: {self.message}" if keys else f"{self.place}: {self.message}"
        return f"{text}; {self.hint}" if self.hint else text


class InvalidRecipeError(RecipeError):
    """A recipe with problems.

    ``message`` has a line for each problem, followed by the line of the recipe and a caret.
    ``problems`` contains the same as objects.
    """

    problems: tuple[Problem, ...] = ()


def recipe_error(problems: Iterable[Problem]) -> InvalidRecipeError:
    """Return an error with all problems, sorted by location, without duplicates."""
    ordered = in_order(problems)
    error = InvalidRecipeError(render(ordered))
    error.problems = tuple(ordered)
    return error


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Sort problems by file, line, and column, and remove duplicates."""

    def key(problem: Problem) -> tuple[str, int, int, str]:
        place = problem.place
        return place.source.name, place.line, place.column, str(problem)

    unique = {key(problem): problem for problem in problems}
    return [unique[k] for k in sorted(unique)]


def render(problems: Iterable[Problem]) -> str:
    """Format problems with their snippets; at most 100."""
    listed = list(problems)
    blocks = [f"{problem}\n{snippet(problem.place)}" for problem in listed[:_SHOWN]]
    if len(listed) > _SHOWN:
        blocks.append(f"... and {len(listed) - _SHOWN} more")
    return "\n".join(blocks)


def snippet(place: Place) -> str:
    """Return the line of a location, with a caret under its column."""
    lines = place.source.lines
    line = lines[place.line - 1] if place.line <= len(lines) else ""
    start = max(0, place.column - 1 - _SNIPPET_WIDTH // 2)
    shown = "".join(c if c.isprintable() else " " for c in line[start : start + _SNIPPET_WIDTH])
    return f"{place.line:5d} | {shown}".rstrip() + f"\n      | {' ' * (place.column - 1 - start)}^"
