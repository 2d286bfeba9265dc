"""Load recipes, and check that their output directories differ."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from mobileprep.core.arguments import FilePath
from mobileprep.core.files import inside
from mobileprep.errors import UsageError
from mobileprep.recipe.load import load_recipe as load_file
from mobileprep.recipe.model import Recipe


def load_recipe(
    path: FilePath,
    *,
    settings: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Recipe:
    """Read and check a recipe, without opening the files that it names.

    Args:
        path: the recipe file.
        settings: values of ``${NAME}`` references; they take precedence over the environment.
        environ: the environment. Default: that of the process.

    Raises:
        CorruptFileError: if the recipe, or one that it extends, is missing or unreadable.
        RecipeError: if the recipe is invalid; contains all problems and their locations.
    """
    return load_file(os.fspath(path), settings=settings, environ=environ)


def load_recipes(recipes: Recipe | FilePath | Iterable[Recipe | FilePath]) -> list[Recipe]:
    """Return recipes as a list, and load those that are given as files."""
    listed = [recipes] if isinstance(recipes, Recipe | str | os.PathLike) else recipes
    loaded = [r if isinstance(r, Recipe) else load_recipe(r) for r in listed]
    check_names(loaded)
    return loaded


def check_names(recipes: Iterable[Recipe]) -> None:
    """Check that no two recipes share an output directory."""
    seen: dict[str, str] = {}
    for recipe in recipes:
        if recipe.name in seen:
            message = f"{recipe.file} and {seen[recipe.name]} are both named {recipe.name!r}"
            raise UsageError(
                message, "rename one of them, because output directories are named after recipes"
            )
        seen[recipe.name] = recipe.file


def target_folders(
    recipes: Iterable[Recipe], out: Path, targets: Collection[str] = ()
) -> list[Path]:
    """Return the output directories of the targets, with symlinks resolved."""
    return [
        inside(out, f"{recipe.name}/{target.folder}")
        for recipe in recipes
        for target in recipe.chosen(targets)
    ]
