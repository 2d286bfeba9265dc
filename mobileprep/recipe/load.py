"""Load a recipe: from a path to a checked and resolved ``Recipe``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from mobileprep.recipe.checks import cache_problems, meaning_problems
from mobileprep.recipe.files import load_tree
from mobileprep.recipe.metrics import memory_of, memory_problems
from mobileprep.recipe.model import Recipe
from mobileprep.recipe.resolve import (
    Chains,
    cache_of,
    plugin_problems,
    plugins_of,
    repair_chain,
    resolve_target,
)
from mobileprep.recipe.schemas import TransformSchemas, recipe_schema
from mobileprep.recipe.sections import ModelSections, model_sections
from mobileprep.recipe.tree import Problem, plain, recipe_error
from mobileprep.recipe.units import Variables
from mobileprep.recipe.validate import schema_problems


def load_recipe(
    path: str | Path,
    *,
    settings: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    schemas: TransformSchemas | None = None,
    text: str | None = None,
) -> Recipe:
    """Read, check, and resolve a recipe.

    Args:
        path: the recipe file.
        settings: values of ``${NAME}`` references; they take precedence over the environment.
        environ: the environment. Default: that of the process.
        schemas: schemas of the available transforms. Default: those of this package.
        text: content of the file if it is not written yet.

    Raises:
        CorruptFileError: if the recipe, or one that it extends, is missing or unreadable.
        RecipeError: if the recipe is invalid; contains all problems.
    """
    variables = Variables(settings or {}, os.environ if environ is None else environ)
    files: list[Path] = []
    root = load_tree(Path(path), variables, text, files.append)
    models = model_sections(root)
    chains = Chains(schemas or TransformSchemas(plugins=plugins_of(root)))
    problems = [
        *schema_problems(root, recipe_schema()),
        *cache_problems(root),
        *memory_problems(root),
        *plugin_problems(root),
        *meaning_problems(models),
        *_chain_problems(models, chains),
    ]
    if problems or variables.problems:
        raise recipe_error([*variables.problems, *_elsewhere(problems, variables.problems)])
    return Recipe(
        version=int(plain(root)["version"]),
        name=str(plain(root)["name"]),
        file=str(path),
        targets=tuple(resolve_target(t, chains) for model in models for t in model.targets),
        variables=tuple(sorted(variables.used)),
        cache=cache_of(root),
        memory=memory_of(root),
        files=tuple(file.absolute() for file in files),
        tree=root,
    )


def _chain_problems(models: Iterable[ModelSections], chains: Chains) -> list[Problem]:
    return [
        problem
        for model in models
        for target in model.targets
        for node in (target.get("transforms"), target.get("then"), repair_chain(target))
        for problem in chains.read(node).problems
    ]


def _elsewhere(problems: Iterable[Problem], missing: Iterable[Problem]) -> list[Problem]:
    """Drop problems that only follow from a variable without a value."""
    blamed = {str(problem.place) for problem in missing}
    return [problem for problem in problems if str(problem.place) not in blamed]
