"""What a build reads from outside: models, data, plugins and their schemas, recipes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from mobileprep.plan.spec import Files, Plan
from mobileprep.recipe.lock_file import lock_path
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.settings import InputFile


def files_read(recipes: Iterable[Recipe], plan: Plan, *, locked: bool = False) -> set[Path]:
    """The files that a build reads.

    Args:
        recipes: those of the plan, with the recipes that they extend.
        plan: what is to be built.
        locked: whether it goes by the locks beside the recipes.
    """
    recipes = list(recipes)
    locks = {lock_path(Path(recipe.file)) for recipe in recipes} if locked else set()
    return {*_read(recipes, plan)} | locks


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


def files_named(recipes: Iterable[Recipe]) -> set[Path]:
    """What recipes name, whether it is there or not: files, folders, prefixes of checkpoints."""
    return {file.path for recipe in recipes for file in _input_files(recipe.targets)}


def folders_looked_into(plan: Plan, named: set[Path], read: Iterable[Path]) -> set[Path]:
    """The folders in which a file that comes or goes could change what is planned.

    Args:
        plan: what is to be built.
        named: what its recipes name, see ``files_named``.
        read: the files that are read, there or not.
    """
    slots = [files for spec in plan.stages for files in spec.stage.files.values()]
    roots = {files.root for files in slots}
    # Beside a MetaGraph lie its assets.
    beside = {root.with_name("assets") for root in roots}
    walked = {*folders_read(plan), *beside, *(path for path in named if path.is_dir())}
    below = {Path(folder) for top in walked for folder, _, _ in os.walk(top.absolute())}
    return _folders_above([*read, *named, *roots, *beside]) | below


def _folders_above(paths: Iterable[Path]) -> set[Path]:
    """The nearest folders above some paths that are there."""
    found = set()
    for path in paths:
        found.add(next(above for above in path.absolute().parents if above.is_dir()))
    return found


def _input_files(value: object) -> Iterator[InputFile]:
    """Each file that a part of a recipe names, anywhere in it."""
    if isinstance(value, InputFile):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _input_files(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _input_files(item)
    elif isinstance(value, tuple | list | frozenset):
        for item in value:
            yield from _input_files(item)


def _read(recipes: Iterable[Recipe], plan: Plan) -> Iterator[Path]:
    for spec in plan.stages:
        yield from (file.path for file in spec.input_files)
    for recipe in recipes:
        # Of one that is overridden as a whole too: what it holds next may count.
        yield from recipe.files
        for target in recipe.targets:
            yield from () if target.device_file is None else (target.device_file.path,)
            yield from (pin.file.path for pin in target.source.pins)
            yield from (s.plugin.schema.path for s in target.transforms if s.plugin is not None)


def _folders(files: Files) -> Iterator[Path]:
    yield files.root
    for file in files.members:
        yield from (p for p in file.path.parents if files.root in p.parents)
