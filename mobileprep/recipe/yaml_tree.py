"""Parse YAML into a tree with size limits, from PyYAML's events so that no detail is lost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, NoReturn, Protocol, TypeAlias, cast

import yaml

from mobileprep.recipe.tree import (
    Entry,
    KeyPath,
    MappingNode,
    Node,
    Place,
    Problem,
    Scalar,
    Sequence,
    SourceText,
    recipe_error,
    show,
)
from mobileprep.recipe.units import resolve


class YamlParser(Protocol):
    """The methods of PyYAML's loaders that this module uses."""

    def get_event(self) -> yaml.Event | None:
        """Return the next event."""

    def dispose(self) -> None:
        """Release the text."""


class _Mark(Protocol):
    line: int
    column: int


YamlLoader: TypeAlias = Callable[[str], YamlParser]
DEFAULT_LOADER: YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAX_NODES = 10_000
MAX_DEPTH = 100
_TOO_DEEP = (f"nested more than {MAX_DEPTH} levels deep", "flatten it")
_MERGE_KEY = "<<"
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse_yaml(source: SourceText, loader: YamlLoader = DEFAULT_LOADER) -> MappingNode:
    """Parse a file that contains a single YAML mapping.

    Duplicate keys, tags, keys that are not strings, and more than ``MAX_NODES`` values (with
    aliases expanded) or ``MAX_DEPTH`` levels are errors. Merge keys (``<<``) are supported.
    """
    unreadable = _UNREADABLE.search(source.text)
    if unreadable is not None:
        place = place_at(source, unreadable.start())
        code = f"U+{ord(unreadable.group()):04X}"
        _refuse(place, f"the character {code} is not allowed in YAML", "delete it")
    references = References(source.text)
    try:
        parser = loader(references.hidden)
        try:
            return _Composer(source, parser, references).document()
        finally:
            parser.dispose()
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML's Python parser raises ValueError and OverflowError for some escapes.
        raise recipe_error([_syntax_problem(source, references, error)]) from error


def place_at(source: SourceText, index: int) -> Place:
    """Return the location of a character in a file."""
    before = SourceText(source.name, source.folder, source.text[:index]).lines
    return Place(source, len(before), len(before[-1]) + 1)


_ContentEvent: TypeAlias = yaml.ScalarEvent | yaml.CollectionStartEvent


class _Anchored(NamedTuple):
    node: Node
    size: int
    height: int


class _Composer:
    """Convert the events of one document into a tree."""

    def __init__(self, source: SourceText, parser: YamlParser, references: References) -> None:
        self._source = source
        self._references = references
        self._parser = parser
        self._anchors: dict[str, _Anchored] = {}
        self._open_anchors: set[str] = set()
        self._count = 0

    def document(self) -> MappingNode:
        self._next()  # Start of the stream.
        start = self._next()
        if isinstance(start, yaml.StreamEndEvent):
            _refuse(Place(self._source, 1, 1), "the file is empty", "write at least 'version: 1'")
        root = self._node(self._next(), (), 1)
        self._next()  # End of the document.
        end = self._next()
        if not isinstance(end, yaml.StreamEndEvent):
            hint = "put each recipe into a file of its own"
            _refuse(self._place(end), "a second YAML document starts here", hint)
        if not isinstance(root, MappingNode):
            message = "a recipe is a mapping of keys to values"
            _refuse(root.place, message, "write 'key: value' lines, such as 'version: 1'")
        return root

    def _next(self) -> yaml.Event:
        # Parsing stops at the end event of a document, so there is always a next event.
        return cast(yaml.Event, self._parser.get_event())

    def _place(self, event: yaml.Event, keys: KeyPath = ()) -> Place:
        return _place_of_mark(self._source, event.start_mark, keys)

    def _node(self, event: yaml.Event, keys: KeyPath, depth: int) -> Node:
        place = self._place(event, keys)
        self._check_depth(place, depth)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor or "", place, depth)
        event = cast(_ContentEvent, event)
        if event.tag is not None:
            hint = f"remove {show(event.tag)}; quote a value to keep it text"
            _refuse(place, "YAML tags are not read", hint)
        before = self._count
        self._add(1, place)
        anchor = event.anchor
        if anchor is not None:
            self._open_anchors.add(anchor)
        node = self._content(event, place, depth)
        if anchor is not None:
            self._open_anchors.discard(anchor)
            self._anchors[anchor] = _Anchored(node, self._count - before, _height(node))
        return node

    def _content(self, event: _ContentEvent, place: Place, depth: int) -> Node:
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(place, depth)
        if not isinstance(event, yaml.ScalarEvent):
            return self._mapping(place, depth)
        text = self._references.shown(event.value)
        if _SURROGATE.search(text):
            _refuse(
                place, "half of a surrogate pair is not a character", "write the character itself"
            )
        written_plain = event.implicit[0]
        value = resolve(text) if written_plain else text
        return Scalar(value, place, text, plain=written_plain)

    def _sequence(self, place: Place, depth: int) -> Sequence:
        items: list[Node] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._node(event, (*place.keys, len(items)), depth + 1))
        return Sequence(tuple(items), place)

    def _mapping(self, place: Place, depth: int) -> MappingNode:
        entries: dict[str, Entry] = {}
        merged: Node | None = None
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key, key_place = self._key(event, place.keys, depth)
            if key == _MERGE_KEY and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
                if merged is not None:
                    _refuse(key_place, "the merge key '<<' is given twice", "merge a list of both")
                merged = self._node(self._next(), (*place.keys, key), depth + 1)
                continue
            if key in entries:
                first = entries[key].key_place
                message = f"the key {show(key)} is given twice; first at {first}"
                _refuse(key_place, message, "keep one of them")
            entries[key] = Entry(key_place, self._node(self._next(), key_place.keys, depth + 1))
        if merged is not None:
            entries = {**self._merged(merged), **entries}
        return MappingNode(entries, place)

    def _key(self, event: yaml.Event, keys: KeyPath, depth: int) -> tuple[str, Place]:
        node = self._node(event, keys, depth + 1)
        if not isinstance(node, Scalar):
            _refuse(self._place(event, keys), "a key must be text", "use a plain name")
        if not isinstance(node.value, str):
            message = f"a key must be text, and {node.text or 'an empty key'} is not"
            _refuse(self._place(event, keys), message, f'write "{node.text}" in quotes')
        return node.value, self._place(event, (*keys, node.value))

    def _merged(self, node: Node) -> dict[str, Entry]:
        sources = node.items if isinstance(node, Sequence) else (node,)
        merged: dict[str, Entry] = {}
        for source in sources:
            if not isinstance(source, MappingNode):
                _refuse(source.place, "'<<' merges mappings only", "name an anchored mapping")
            for key, entry in source.items():
                merged.setdefault(key, entry)
        return merged

    def _alias(self, anchor: str, place: Place, depth: int) -> Node:
        if anchor in self._open_anchors:
            _refuse(place, f"the alias *{anchor} stands inside its own anchor", "remove it")
        anchored = self._anchors.get(anchor)
        if anchored is None:
            hint = f"write '&{anchor}' before the value that is meant"
            _refuse(place, f"the alias *{anchor} has no anchor above it", hint)
        self._add(anchored.size, place)
        self._check_depth(place, depth + anchored.height - 1)
        return anchored.node

    def _add(self, count: int, place: Place) -> None:
        self._count += count
        if self._count > MAX_NODES:
            message = f"more than {MAX_NODES:,} values, aliases counted as often as they are used"
            _refuse(place, message, "use fewer aliases")

    def _check_depth(self, place: Place, depth: int) -> None:
        if depth > MAX_DEPTH:
            _refuse(place, *_TOO_DEEP)


def _height(node: Node) -> int:
    children: Iterator[Node] = iter(())
    if isinstance(node, Sequence):
        children = iter(node.items)
    elif isinstance(node, MappingNode):
        children = (entry.value for _, entry in node.items())
    return 1 + max((_height(child) for child in children), default=0)


def _place_of_mark(source: SourceText, mark: _Mark | None, keys: KeyPath = ()) -> Place:
    return Place(source, mark.line + 1, mark.column + 1, keys) if mark else Place(source, 1, 1)


def _syntax_problem(source: SourceText, references: References, error: Exception) -> Problem:
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem(Place(source, 1, 1), "not YAML", "look for odd escapes or directives")
    place = _place_of_mark(source, error.problem_mark or error.context_mark)
    if "nesting depth" in (error.problem or ""):
        # libyaml in PyYAML 6.0.4 has its own limit, which reading ahead may exceed.
        return Problem(place, *_TOO_DEEP)
    line = source.lines[place.line - 1] if place.line <= len(source.lines) else ""
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation:
        place = Place(source, place.line, indentation.index("\t") + 1)
        return Problem(place, "a tab in the indentation", "indent with spaces")
    context = f"{error.context}: " if error.context else ""
    message = references.shown(f"not YAML: {context}{error.problem or 'cannot be parsed'}")
    if in_sight(line):
        hint = "a default with quotes or a backslash needs quotes around the whole value"
        return Problem(place, message, f"{hint}, and none has braces")
    return Problem(place, message, "check quotes, colons and indentation just before this place")


def _refuse(place: Place, message: str, hint: str) -> NoReturn:
    raise recipe_error([Problem(place, message, hint)])


_REFERENCE: Final = re.compile("\\$\\{[^{}\"'\\\\\r\n\x85\u2028\u2029\U00010000-\U0010ffff]*\\}")
_DISTANCE: Final = 0x100000
_HIDDEN: Final = re.compile("[\U00100000-\U0010ffff]+")


class References:
    """The references in a file's text.

    Args:
        text: the text. If it already contains placeholder characters, references are not hidden.
    """

    def __init__(self, text: str) -> None:
        self._hides = not _HIDDEN.search(text)
        self.hidden = _moved(_REFERENCE, text, _DISTANCE) if self._hides else text

    def shown(self, text: str) -> str:
        """Return a part of the hidden text with its original characters."""
        return _moved(_HIDDEN, text, -_DISTANCE) if self._hides else text


def in_sight(line: str) -> bool:
    """Return whether a line contains the start of a reference that is not hidden."""
    return "${" in _REFERENCE.sub("", line)


def _moved(what: re.Pattern[str], text: str, distance: int) -> str:
    return what.sub(lambda match: "".join(chr(ord(c) + distance) for c in match.group()), text)
