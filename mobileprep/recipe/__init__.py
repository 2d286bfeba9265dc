"""The recipe: read, checked with every problem at its place, and resolved for each target."""

from __future__ import annotations

from mobileprep.options.freeze import Freeze
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Plugin, Recipe, Step, Target, digestible
from mobileprep.recipe.presence import check_files
from mobileprep.recipe.problems import InvalidRecipeError, Problem
from mobileprep.recipe.quantize_settings import Quantize
from mobileprep.recipe.settings import Budget, Check, InputFile, InputSpec, Pin, Source
from mobileprep.recipe.steps import parse_transforms_flag
from mobileprep.recipe.validation_settings import MetricChoice, MetricFunction, Validation

__all__ = [
    "Budget",
    "Check",
    "Freeze",
    "InputFile",
    "InputSpec",
    "InvalidRecipeError",
    "MetricChoice",
    "MetricFunction",
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
