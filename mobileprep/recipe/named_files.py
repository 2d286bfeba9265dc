"""The files that a recipe names, and those among a transform's parameters by their ``format``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from mobileprep.recipe.model import StepFile, StepFileKind
from mobileprep.recipe.schemas import Schema
from mobileprep.recipe.settings import InputFile
from mobileprep.recipe.tree import MappingNode, Node, Problem, Scalar, Sequence

_FORMATS: Final[dict[str, StepFileKind]] = {"path": "path", "checkpoint": "checkpoint"}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


class _Named(NamedTuple):
    parameter: str
    at: int | None
    kind: StepFileKind
    value: Scalar


def input_file(named: Scalar) -> InputFile:
    """A file named by a text, relative to the recipe that holds it, extended or not."""
    name = str(named.value)
    return InputFile(name, named.place.source.folder / name, str(named.place))


def paths_in(node: Node) -> Iterator[Path]:
    """What each text below a node names if it is a path: the most that a recipe may read.

    Which texts are paths is not known of a recipe that is wrong.
    """
    if isinstance(node, Scalar):
        if isinstance(node.value, str) and not _CONTROL.search(node.value):
            yield node.place.source.folder / node.value
        return
    below = node.items if isinstance(node, Sequence) else [e.value for _, e in node.items()]
    for inner in below:
        yield from paths_in(inner)


def what_is_there(path: Path) -> str:
    """What has a name, for a message that it is not what is needed; empty where nothing has it."""
    # os.path answers, where Path raises, for names too long.
    if not os.path.lexists(path):
        return ""
    if os.path.isdir(path):  # noqa: PTH112
        return "a folder"
    if os.path.isfile(path):  # noqa: PTH113
        return "a file"
    is_device = os.path.exists(path)  # noqa: PTH110
    return "a device or a pipe" if is_device else "a link that leads nowhere"


def named_files(parameters: MappingNode, schema: Schema) -> tuple[StepFile, ...]:
    """The files that checked parameters name.

    A parameter, or the items of a list, with ``"format": "path"`` names a file, and with
    ``"format": "checkpoint"`` a checkpoint by its prefix. An empty text names nothing.
    """
    return tuple(
        StepFile(named.parameter, named.at, named.kind, input_file(named.value))
        for named in _named(parameters, schema)
    )


def path_problems(parameters: MappingNode, schema: Schema) -> list[Problem]:
    """A problem for each name that no file can have."""
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
        kind = _FORMATS.get(described.get("items", described).get("format", ""))
        for index, item in enumerate(items):
            if kind is not None and isinstance(item, Scalar) and item.value:
                yield _Named(name, index if isinstance(value, Sequence) else None, kind, item)
