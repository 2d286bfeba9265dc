"""What a build reads from outside: models, data, plugins and their schemas, recipes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from mobileprep.plan.spec import Files, Plan
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.tree import files_of


def files_read(recipes: Iterable[Recipe], plan: Plan) -> set[Path]:
    """The files that a build reads.

    Args:
        recipes: those of the plan, with the recipes that they extend.
        plan: what is to be built.
    """
    return {*_read(recipes, plan)}


def folders_read(plan: Plan) -> set[Path]:
    """The folders that a recipe names in place of files, and those below: what is put there
    changes what a build reads."""
    return {
        folder
        for spec in plan.stages
        for files in spec.stage.files.values()
        if files.root.is_dir()
        for folder in _folders(files)
    }


def _read(recipes: Iterable[Recipe], plan: Plan) -> Iterator[Path]:
    for spec in plan.stages:
        yield from (file.path for file in spec.input_files)
    for recipe in recipes:
        yield from files_of(recipe.tree) if recipe.tree is not None else ()
        for target in recipe.targets:
            yield from (pin.file.path for pin in target.source.pins)
            yield from (s.plugin.schema.path for s in target.transforms if s.plugin is not None)


def _folders(files: Files) -> Iterator[Path]:
    yield files.root
    for file in files.members:
        yield from (p for p in file.path.parents if files.root in p.parents)
