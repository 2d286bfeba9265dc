"""The recipe: read, checked with every problem at its place, and resolved for each target."""

from __future__ import annotations

from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import (
    Budget,
    Check,
    Freeze,
    InputFile,
    InputSpec,
    Pin,
    Plugin,
    Quantize,
    Recipe,
    Source,
    Step,
    Target,
    Validation,
    digestible,
)
from mobileprep.recipe.presence import check_files
from mobileprep.recipe.problems import InvalidRecipeError, Problem
from mobileprep.recipe.steps import parse_transforms_flag

__all__ = [
    "Budget",
    "Check",
    "Freeze",
    "InputFile",
    "InputSpec",
    "InvalidRecipeError",
    "Pin",
    "Plugin",
    "Problem",
    "Quantize",
    "Recipe",
    "Source",
    "Step",
    "Target",
    "Validation",
    "check_files",
    "digestible",
    "load_recipe",
    "parse_transforms_flag",
]
