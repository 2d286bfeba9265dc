"""What of some recipes can be planned, where a build goes on after what cannot."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence

from mobileprep.errors import MobileprepError
from mobileprep.recipe.model import Recipe


def plannable(
    recipes: Iterable[Recipe],
    targets: Collection[str],
    plan: Callable[[Sequence[Recipe]], object],
) -> tuple[list[Recipe], list[MobileprepError]]:
    """The recipes with those of their targets alone that can be planned, and what fails.

    Args:
        recipes: the recipes.
        targets: the names of the targets that are meant; all without any.
        plan: plans recipes, or raises why that cannot be.
    """
    fit: list[Recipe] = []
    faults: dict[str, MobileprepError] = {}
    for recipe in recipes:
        left = []
        for target in recipe.chosen(targets):
            try:
                plan([dataclasses.replace(recipe, targets=(target,))])
                left.append(target)
            except MobileprepError as error:
                faults.setdefault(str(error), error)
        if left:
            fit.append(dataclasses.replace(recipe, targets=tuple(left)))
    return fit, list(faults.values())
