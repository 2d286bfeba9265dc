"""Recipes as they are read, before anything is planned."""

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
    """Read and check a recipe; the files that it names are not looked at.

    Args:
        path: the recipe's file.
        settings: what ``${NAME}`` means in it, before the environment.
        environ: the environment; by default that of the process.

    Raises:
        CorruptFileError: the recipe, or one that it extends, is missing or unreadable.
        RecipeError: anything else that is wrong with it, all problems at once with their places.
    """
    return load_file(os.fspath(path), settings=settings, environ=environ)


def load_recipes(recipes: Recipe | FilePath | Iterable[Recipe | FilePath]) -> list[Recipe]:
    """One or more recipes, those given as files loaded."""
    listed = [recipes] if isinstance(recipes, Recipe | str | os.PathLike) else recipes
    loaded = [r if isinstance(r, Recipe) else load_recipe(r) for r in listed]
    check_names(loaded)
    return loaded


def check_names(recipes: Iterable[Recipe]) -> None:
    """Make sure that no two recipes would share a folder."""
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
    """The folders of recipes' targets, links resolved."""
    return [
        inside(out, f"{recipe.name}/{target.folder}")
        for recipe in recipes
        for target in recipe.chosen(targets)
    ]
