"""The recipes that a command line names: files, folders with one, and all below a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mobileprep.core.files import unreadable
from mobileprep.errors import UsageError

RECIPE = "recipe.yaml"
# How many names a hint tells.
_TOLD = 5


def recipe_files(names: Iterable[str], *, recursive: bool, out: str) -> list[Path]:
    """The recipe files of a command line, in its order, none twice.

    Args:
        names: of files and folders.
        recursive: take every recipe below a folder instead of the folder's own.
        out: the folder of outputs, in which no recipes are looked for.

    Raises:
        UsageError: a folder without a recipe, or an empty name.
        CorruptFileError: a folder that cannot be listed.
    """
    found: dict[str, Path] = {}
    for name in names:
        if not name:
            message = "an empty name is no recipe"
            raise UsageError(message, "name a file or a folder; '.' is the current one")
        for path in _below(Path(name), out) if recursive else [_named(Path(name))]:
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def _named(path: Path) -> Path:
    """The file itself, or the recipe in the folder."""
    if not path.is_dir():
        return path
    if not (path / RECIPE).is_file():
        message = f"the folder has no {RECIPE}"
        raise UsageError(message, _mend(path), str(path))
    return path / RECIPE


def _below(path: Path, out: str) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(_walk(path, os.path.realpath(out)))
    if not found:
        message = f"neither the folder nor any below it has a {RECIPE}"
        raise UsageError(message, "write one with 'mobileprep init'", str(path))
    return found


def _walk(top: Path, out: str) -> Iterator[Path]:
    """The recipes below a folder; hidden folders, links to folders and outputs are passed over."""
    for folder, below, files in os.walk(top, onerror=_refuse):
        below[:] = [
            name
            for name in below
            if not name.startswith(".") and os.path.realpath(Path(folder) / name) != out
        ]
        if RECIPE in files:
            yield Path(folder) / RECIPE


def _refuse(error: OSError) -> None:
    raise unreadable(Path(error.filename), error) from error


def _mend(folder: Path) -> str:
    """What to do about a folder that has no recipe of the usual name."""
    beside = sorted(str(p) for end in ("yaml", "yml") for p in folder.glob(f"*.{end}"))
    if beside:
        return f"name the file: {', '.join(beside[:_TOLD])}"
    below = sorted(str(p) for p in folder.glob(f"*/{RECIPE}"))
    if below:
        return f"'-r' takes those below it, such as {', '.join(below[:_TOLD])}"
    return "write one with 'mobileprep init'"
