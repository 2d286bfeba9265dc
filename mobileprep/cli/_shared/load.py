"""From a command line to its recipes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable

from mobileprep.api.recipes import check_names
from mobileprep.cli._shared.arguments import OUT, settings_of
from mobileprep.cli._shared.folders import recipe_files
from mobileprep.cli._shared.warn import warn_all
from mobileprep.errors import RecipeError
from mobileprep.recipe.cautions import recipe_cautions
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.problems import InvalidRecipeError, render


def load_recipes(args: argparse.Namespace) -> list[Recipe]:
    """All recipes of a command line.

    Raises:
        RecipeError: the problems of all recipes together.
        UsageError: a --set without ``=``, a folder without a recipe, or two recipes of one name.
    """
    settings = settings_of(args)
    recipes: list[Recipe] = []
    problems: list[str] = []
    hints: list[str] = []
    told: set[str] = set()
    out = getattr(args, "out", OUT)
    for path in recipe_files(args.recipes, recursive=args.recursive, out=out):
        try:
            recipes.append(load_recipe(path, settings=settings, environ=os.environ))
        except RecipeError as error:
            problems += _untold(error, told)
            hints.append(error.hint)
    if problems:
        raise RecipeError("\n".join(problems), next((h for h in hints if h), ""))
    check_names(recipes)
    return recipes


def _untold(error: RecipeError, told: set[str]) -> list[str]:
    """What is wrong with a recipe, without what was told already of one that it extends."""
    if not isinstance(error, InvalidRecipeError):
        return [str(error)]
    left = [problem for problem in error.problems if str(problem) not in told]
    told.update(map(str, left))
    return [render(left)] if left else []


def warn_of_chains(recipes: Iterable[Recipe]) -> None:
    """Tell what the chains of recipes alone show to go wrong."""
    for recipe in recipes:
        warn_all(recipe_cautions(recipe))
