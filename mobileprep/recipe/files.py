"""Read recipe files, and merge each recipe over the recipes that it extends."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mobileprep.core.paths import opened
from mobileprep.errors import CorruptFileError
from mobileprep.recipe.model import StepFile, StepFileKind
from mobileprep.recipe.schemas import Schema
from mobileprep.recipe.sections import merge_sections
from mobileprep.recipe.settings import InputFile
from mobileprep.recipe.tree import (
    MappingNode,
    Node,
    Place,
    Problem,
    Scalar,
    Sequence,
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
    """Merge a recipe over the recipes that it extends, and replace its variables."""
    trees: list[MappingNode] = []
    seen: set[str] = set()
    extends: Node | None = None
    while True:
        begin(path)
        seen.add(os.path.realpath(path))
        source = _source(path, text) if text is not None and extends is None else None
        tree = parse_yaml(source or _read_named_by(path, extends))
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
    """Read the text of a recipe file."""
    try:
        with opened(path) as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        from mobileprep.core.files import unreadable  # Slow to import, and only needed for errors.

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


_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class _Named(NamedTuple):
    parameter: str
    at: int | None
    kind: StepFileKind
    value: Scalar


def input_file(name: str, place: Place) -> InputFile:
    """Return a named file, relative to the recipe file that contains the name."""
    return InputFile(name, place.source.folder / name, str(place))


def paths_in(node: Node) -> Iterator[Path]:
    """Yield the path of each string below a node: all files that a recipe could read.

    In an invalid recipe it is not known which strings are paths.
    """
    if isinstance(node, Scalar):
        if isinstance(node.value, str) and not _CONTROL.search(node.value):
            yield node.place.source.folder / node.value
        return
    below = node.items if isinstance(node, Sequence) else [e.value for _, e in node.items()]
    for inner in below:
        yield from paths_in(inner)


def what_is_there(path: Path) -> str:
    """Describe the file system entry at a path for error messages; empty if there is none."""
    # Path methods raise for names that are too long; os.path functions do not.
    if not os.path.lexists(path):
        return ""
    if os.path.isdir(path):  # noqa: PTH112
        return "a folder"
    if os.path.isfile(path):  # noqa: PTH113
        return "a file"
    is_device = os.path.exists(path)  # noqa: PTH110
    return "a device or a pipe" if is_device else "a link that leads nowhere"


def named_files(parameters: MappingNode, schema: Schema) -> tuple[StepFile, ...]:
    """Return the files that checked parameters name.

    A parameter (or the items of a list) with ``"format": "path"`` names a file, and with
    ``"format": "checkpoint"`` the prefix of a checkpoint. An empty string names no file.
    """
    return tuple(
        StepFile(parameter, at, kind, input_file(str(file.value), file.place))
        for parameter, at, kind, file in _named(parameters, schema)
    )


def path_problems(parameters: MappingNode, schema: Schema) -> list[Problem]:
    """Return a problem for each invalid path."""
    message = "a path has no control characters"
    return [
        Problem(named.value.place, message, "remove them")
        for named in _named(parameters, schema)
        if _CONTROL.search(str(named.value.value))
    ]


def _named(parameters: MappingNode, schema: Schema) -> Iterator[_Named]:
    properties = schema.get("properties", {})
    for name, entry in parameters.items():
        described, value = properties.get(name, {}), entry.value
        items = value.items if isinstance(value, Sequence) else (value,)
        kind = described.get("items", described).get("format")
        for index, item in enumerate(items):
            if kind in ("path", "checkpoint") and isinstance(item, Scalar) and item.value:
                yield _Named(name, index if isinstance(value, Sequence) else None, kind, item)
