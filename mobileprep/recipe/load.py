"""Load recipes: from paths to checked and resolved ``Recipe`` objects."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from mobileprep.core.arguments import FilePath
from mobileprep.core.files import inside
from mobileprep.errors import UsageError
from mobileprep.recipe.checks import (
    amount_problems,
    cache_problems,
    model_problems,
    target_problems,
)
from mobileprep.recipe.data import read_device, read_measurement
from mobileprep.recipe.decode import Decoder, amount
from mobileprep.recipe.files import input_file, load_tree
from mobileprep.recipe.model import Plugin, Recipe
from mobileprep.recipe.pipeline import pipeline_problems
from mobileprep.recipe.resolve import Chains, resolve_target
from mobileprep.recipe.schemas import TransformSchemas, name_faults, named_plugin, recipe_schema
from mobileprep.recipe.sections import model_sections
from mobileprep.recipe.settings import Cache
from mobileprep.recipe.tree import MappingNode, Problem, Scalar, Sequence, recipe_error
from mobileprep.recipe.units import Variables
from mobileprep.recipe.validate import schema_problems


def load_recipe(
    path: FilePath,
    *,
    settings: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    text: str | None = None,
) -> Recipe:
    """Read and check a recipe, without opening the files that it names.

    Args:
        path: the recipe file.
        settings: values of ``${NAME}`` references; they take precedence over the environment.
        environ: the environment. Default: that of the process.
        text: content of the file if it is not written yet.

    Raises:
        CorruptFileError: if the recipe, or one that it extends, is missing or unreadable.
        RecipeError: if the recipe is invalid; contains all problems and their locations.
    """
    variables = Variables(settings or {}, os.environ if environ is None else environ)
    files: list[Path] = []
    root = load_tree(Path(path), variables, text, files.append)
    plugins, plugin_problems = _plugins(root)
    chains = Chains(TransformSchemas(plugins=plugins))
    models = model_sections(root)
    decoder = Decoder()
    cache = decoder.attempt(root.get("cache"), Cache)
    targets = [
        (target.tree, resolve_target(target, decoder, chains))
        for model in models
        for target in model.targets
    ]
    problems = [
        *schema_problems(root, recipe_schema()),
        *cache_problems(cache, root),
        *amount_problems("memory", root.get("memory")),
        *plugin_problems,
        *model_problems(models),
        *pipeline_problems(targets),
    ]
    for tree, target in targets:
        problems += [*target_problems(target, tree), *chains.problems(tree)]
    if problems or variables.problems:
        raise recipe_error([*variables.problems, *_elsewhere(problems, variables.problems)])
    recipe = decoder.struct(
        Recipe,
        {
            "version": root.get("version"),
            "name": root.get("name"),
            "file": os.fspath(path),
            "targets": tuple(
                replace(target, **read_device(tree), **read_measurement(tree))
                for tree, target in targets
            ),
            "variables": tuple(sorted(variables.used)),
            "cache": cache,
            "memory": amount("memory", root.get("memory")),
            "plugins": plugins,
            "files": tuple(file.absolute() for file in files),
        },
    )
    if decoder.errors:  # The schema accepts a value that the types do not.
        raise decoder.errors[0]
    return replace(recipe, tree=root)


def _plugins(root: MappingNode) -> tuple[tuple[Plugin, ...], list[Problem]]:
    """Return the plugins that a recipe names, and the problems of those that would not run."""
    listed = root.get("plugins")
    # The schema reports other values.
    names = [
        item
        for item in (listed.items if isinstance(listed, Sequence) else ())
        if isinstance(item, Scalar) and isinstance(item.value, str) and "\0" not in item.value
    ]
    plugins = tuple(named_plugin(input_file(str(name.value), name.place)) for name in names)
    places = {str(name.place): name.place for name in names}
    problems = [
        Problem(places[plugin.file.place], message, hint)
        for plugin, message, hint in name_faults(plugins)
    ]
    return plugins, problems


def _elsewhere(problems: Iterable[Problem], missing: Iterable[Problem]) -> list[Problem]:
    """Drop problems that only follow from a variable without a value."""
    blamed = {str(problem.place) for problem in missing}
    return [problem for problem in problems if str(problem.place) not in blamed]


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
