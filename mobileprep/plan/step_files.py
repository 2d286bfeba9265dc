"""The files from outside that a step of a chain reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mobileprep.recipe.model import InputFile, Step, Target
from mobileprep.recipe.schemas import TransformSchemas
from mobileprep.recipe.tree import place_of

FILE_FORMAT: Final = "path"
"""The ``format`` that a transform's schema gives a parameter that names a file to read."""


def step_files(target: Target, step: Step) -> Mapping[str, InputFile]:
    """The files from outside that a step reads, by the parameter that names them.

    The code of a transform from outside the package is one of them, as ``plugin``.
    """
    found = {} if step.plugin is None else {"plugin": step.plugin.file}
    texts = {name: value for name, value in step.options.items() if isinstance(value, str)}
    schema = TransformSchemas().get(step.name) if texts and step.plugin is None else None
    properties = schema["properties"] if schema is not None else {}
    for name, value in sorted(texts.items()):
        if value and properties.get(name, {}).get("format") == FILE_FORMAT:
            found[name] = _beside_transforms(target, value)
    return found


def _beside_transforms(target: Target, name: str) -> InputFile:
    """A file named by a transform's parameter, in the folder of the recipe that has the chain."""
    if target.tree is None:
        return InputFile(name, Path(name))
    place = place_of(target.tree, ("transforms",))
    return InputFile(name, place.source.folder / name, str(place))
