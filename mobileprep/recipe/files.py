"""Reads recipe files, and lays a recipe over those that it extends."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable
from pathlib import Path

from mobileprep.core.paths import opened
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.sections import merge_sections
from mobileprep.recipe.tree import (
    MappingNode,
    Node,
    Place,
    Problem,
    Scalar,
    SourceText,
    recipe_error,
)
from mobileprep.recipe.units import Variables
from mobileprep.recipe.yaml_tree import parse_yaml, place_at

MAX_BYTES = 1 << 20
MAX_EXTENDS = 20


def load_tree(
    path: Path,
    variables: Variables,
    text: str | None = None,
    begin: Callable[[Path], None] = lambda _path: None,
) -> MappingNode:
    """The tree of a recipe laid over the recipes that it extends, variables replaced."""
    trees: list[MappingNode] = []
    seen: set[str] = set()
    extends: Node | None = None
    while True:
        begin(path)
        seen.add(os.path.realpath(path))
        given = _source(path, text) if text is not None and extends is None else None
        tree = parse_yaml(given or _read_named_by(path, extends))
        trees.append(tree.without(["extends"]))
        extends = tree.get("extends")
        if extends is None:
            break
        path = _base_path(path, extends, variables)
        if os.path.realpath(path) in seen or len(trees) > MAX_EXTENDS:
            message = f"recipes extend each other in a circle, or more than {MAX_EXTENDS} deep"
            raise recipe_error([Problem(extends.place, message, "remove one 'extends'")])
    merged = trees.pop()
    while trees:
        merged = merge_sections(merged, trees.pop())
    return variables.substitute_mapping(merged)


def read_source(path: Path) -> SourceText:
    """A recipe file's text."""
    try:
        with opened(path) as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        from mobileprep.core.files import unreadable  # slow to import, and only failures need it

        raise unreadable(path, error) from error
    if len(data) > MAX_BYTES:
        message = f"a recipe has at most {MAX_BYTES:,} bytes, and this file has more"
        place = Place(_source(path, ""), 1, 1)
        raise recipe_error([Problem(place, message, "is this the file that was meant?")])
    return _decode(path, data.removeprefix(codecs.BOM_UTF8))


def _decode(path: Path, data: bytes) -> SourceText:
    try:
        return _source(path, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        readable = _source(path, data[: error.start].decode("utf-8"))
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        place = place_at(readable, len(readable.text))
        raise recipe_error([Problem(place, message, "save the file as UTF-8")]) from error


def _source(path: Path, text: str) -> SourceText:
    return SourceText(str(path), path.parent.absolute(), text)


def _read_named_by(path: Path, extends: Node | None) -> SourceText:
    if extends is None:
        return read_source(path)
    try:
        return read_source(path)
    except CorruptFileError as error:
        message = f"{error.where} {error.message}"
        raise CorruptFileError(message, error.hint, str(extends.place)) from error


def _base_path(path: Path, extends: Node, variables: Variables) -> Path:
    named = variables.substitute(extends)
    if variables.problems:
        raise recipe_error(variables.problems)
    if not isinstance(named, Scalar) or not isinstance(named.value, str) or not named.value:
        hint = "write 'extends: other.yaml', a path from this file's folder"
        raise recipe_error([Problem(extends.place, "expected the path of a recipe", hint)])
    if "\0" in named.value:
        raise recipe_error([Problem(extends.place, "a path cannot hold a NUL", "remove it")])
    return Path(os.path.normpath(path.parent / named.value))
