"""The ``device`` of a target: a name of the list, or a file of the app's repository."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.options.devices import DEVICE_FILES, Device, find_device
from mobileprep.recipe.files import read_source
from mobileprep.recipe.named_files import input_file
from mobileprep.recipe.problems import InvalidRecipeError, Problem, recipe_error
from mobileprep.recipe.schemas import SCHEMA_FOLDER, Schema
from mobileprep.recipe.sections import TargetSections
from mobileprep.recipe.settings import InputFile
from mobileprep.recipe.tree import Scalar, plain
from mobileprep.recipe.validate import schema_problems
from mobileprep.recipe.yaml_tree import parse_yaml

DEVICE_SCHEMA: Final = SCHEMA_FOLDER / "device.json"


def device_named(name: str, path: Path | None = None) -> Device:
    """The device of a name, or the profile in a file of that name.

    Args:
        name: of a device, or a path that ends with ``.yaml`` or ``.yml``.
        path: where that leads; by default from the current folder.

    Raises:
        UsageError: no such device.
        CorruptFileError: the file is missing or unreadable.
        RecipeError: the file is no profile; all problems at once.
    """
    if not is_device_file(name):
        return find_device(name)
    tree = parse_yaml(read_source(path or Path(name)))
    problems = schema_problems(tree, _device_schema())
    if problems:
        raise recipe_error(problems)
    given = plain(tree)
    return Device(Path(name).stem, **{**given, "gflops": float(given["gflops"])})


def is_device_file(name: str) -> bool:
    """Whether a text names a profile's file rather than a device."""
    return name.lower().endswith(DEVICE_FILES)


def resolve_device(sections: TargetSections) -> tuple[Device | None, InputFile | None]:
    """The device of a target without problems, and its file where it has one."""
    named = sections.get("device")
    if not isinstance(named, Scalar):
        return None, None
    name = str(named.value)
    file = input_file(named) if is_device_file(name) else None
    return device_named(name, None if file is None else file.path), file


def device_problems(target: TargetSections) -> Iterator[Problem]:
    """A device that is not known, or a file that is no profile."""
    named = target.get("device")
    if not isinstance(named, Scalar) or not isinstance(named.value, str) or "\0" in named.value:
        return
    try:
        device_named(named.value, input_file(named).path)
    except InvalidRecipeError as error:
        yield from error.problems
    except UsageError as error:
        hint = f"{error.hint}; or name a file of your own, such as devices/ours.yaml"
        yield Problem(named.place, error.message, hint)
    except CorruptFileError as error:
        yield Problem(named.place, f"{error.where} {error.message}", error.hint)


@lru_cache(maxsize=1)
def _device_schema() -> Schema:
    schema: Schema = json.loads(DEVICE_SCHEMA.read_text(encoding="utf-8"))
    return schema
