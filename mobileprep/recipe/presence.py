"""Checks that the files a recipe names are there; all that are missing are told at once."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from mobileprep.errors import CorruptFileError, nearest_hint
from mobileprep.recipe.model import InputFile, Recipe, Target


def check_files(recipe: Recipe) -> None:
    """Look for every file that the targets of a recipe read.

    Raises:
        CorruptFileError: one or more are missing; the message has a line for each, with the
            place in the recipe that names it.
    """
    missing: dict[tuple[str, str], str] = {}
    for target in recipe.targets:
        for file, message in _missing(target):
            missing[file.place, file.name] = f"{file.place}: {message}{_nearest(file)}"
    if missing:
        lines = [missing[key] for key in sorted(missing, key=_by_line)]
        hint = "paths start at the folder of the recipe that names them"
        raise CorruptFileError("\n".join(lines), hint)


def _missing(target: Target) -> Iterator[tuple[InputFile, str]]:
    source = target.source
    if source.kind == "saved_model":
        if not source.file.path.is_dir():
            yield source.file, f"there is no folder {source.file.name!r}"
    elif not source.file.path.is_file():
        yield source.file, f"there is no file {source.file.name!r}"
    if source.checkpoint is not None and not _is_checkpoint(source.checkpoint):
        yield source.checkpoint, f"there is no checkpoint {source.checkpoint.name!r}"
    files = [pin.file for pin in source.pins]
    if target.validation is not None:
        files.append(target.validation.data)
    for file in files:
        if not file.path.is_file():
            yield file, f"there is no file {file.name!r}"


def _is_checkpoint(file: InputFile) -> bool:
    """A folder, a file of a set, or the prefix of files."""
    if file.path.exists():
        return True
    return any(name.startswith(f"{file.path.name}.") for name in _beside(file))


def _nearest(file: InputFile) -> str:
    names = _beside(file)
    if not names and not file.path.parent.is_dir():
        return ": its folder does not exist"
    hint = nearest_hint(file.path.name, names)
    return f"; {hint}" if hint else ""


def _beside(file: InputFile) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(os.listdir(file.path.parent))  # noqa: PTH208 - names are all that is asked
    return []


def _by_line(key: tuple[str, str]) -> tuple[str, int, int, str]:
    name, line, column = key[0].rsplit(":", 2)
    return name, int(line), int(column), key[1]
