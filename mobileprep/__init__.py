"""Prepare trained TensorFlow 1-style models for mobile and embedded apps.

The names in ``__all__`` and ``mobileprep.plugin`` are the public API; ``docs/reference/python.md``
describes it. Other modules can change with each release. Names are imported when they are first
used, so ``import mobileprep`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mobileprep.building.builder import Build, BuildResult, BuiltTarget, build
    from mobileprep.building.calibrating import Calibrated, calibrate
    from mobileprep.building.lock import Locked, lock
    from mobileprep.building.report.collect import Report
    from mobileprep.building.tasks import recipe_tasks
    from mobileprep.building.transforming import Transformed, transform
    from mobileprep.building.verify import CheckedFile, CheckedFolder, verify
    from mobileprep.errors import (
        AccuracyError,
        ArtifactError,
        CorruptFileError,
        InternalError,
        InvalidGraphError,
        MobileprepError,
        MobileprepWarning,
        RecipeError,
        TransformError,
        UnsupportedError,
        UsageError,
    )
    from mobileprep.freezing.any_model import freeze
    from mobileprep.freezing.model import FreezeOptions, FreezeResult
    from mobileprep.graph.files import load_graph, save_graph
    from mobileprep.graph.graph import Graph
    from mobileprep.inspection.benchmark import Benchmark, benchmark, run
    from mobileprep.inspection.differing import ModelDifference, diff
    from mobileprep.inspection.summarizing import Summary, summarize
    from mobileprep.recipe.loading import load_recipe
    from mobileprep.recipe.model import Recipe
    from mobileprep.targets.headers import registration_header

__version__ = "0.1.0"

# As imported above for those who check types; a test holds the two together.
_HOMES = {
    "mobileprep.inspection.benchmark": ("Benchmark", "benchmark", "run"),
    "mobileprep.building.builder": ("Build", "BuildResult", "BuiltTarget", "build"),
    "mobileprep.building.calibrating": ("Calibrated", "calibrate"),
    "mobileprep.building.transforming": ("Transformed", "transform"),
    "mobileprep.freezing.any_model": ("freeze",),
    "mobileprep.graph.files": ("load_graph", "save_graph"),
    "mobileprep.targets.headers": ("registration_header",),
    "mobileprep.inspection.differing": ("ModelDifference", "diff"),
    "mobileprep.inspection.summarizing": ("Summary", "summarize"),
    "mobileprep.building.lock": ("Locked", "lock"),
    "mobileprep.recipe.loading": ("load_recipe",),
    "mobileprep.building.tasks": ("recipe_tasks",),
    "mobileprep.building.verify": ("CheckedFile", "CheckedFolder", "verify"),
    "mobileprep.errors": (
        "AccuracyError",
        "ArtifactError",
        "CorruptFileError",
        "InternalError",
        "InvalidGraphError",
        "MobileprepError",
        "MobileprepWarning",
        "RecipeError",
        "TransformError",
        "UnsupportedError",
        "UsageError",
    ),
    "mobileprep.freezing.model": ("FreezeOptions", "FreezeResult"),
    "mobileprep.graph.graph": ("Graph",),
    "mobileprep.recipe.model": ("Recipe",),
    "mobileprep.building.report.collect": ("Report",),
}

__all__ = [
    "AccuracyError",
    "ArtifactError",
    "Benchmark",
    "Build",
    "BuildResult",
    "BuiltTarget",
    "Calibrated",
    "CheckedFile",
    "CheckedFolder",
    "CorruptFileError",
    "FreezeOptions",
    "FreezeResult",
    "Graph",
    "InternalError",
    "InvalidGraphError",
    "Locked",
    "MobileprepError",
    "MobileprepWarning",
    "ModelDifference",
    "Recipe",
    "RecipeError",
    "Report",
    "Summary",
    "TransformError",
    "Transformed",
    "UnsupportedError",
    "UsageError",
    "benchmark",
    "build",
    "calibrate",
    "diff",
    "freeze",
    "load_graph",
    "load_recipe",
    "lock",
    "recipe_tasks",
    "registration_header",
    "run",
    "save_graph",
    "summarize",
    "transform",
    "verify",
]


def __getattr__(name: str) -> object:
    """A public name, kept from then on."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
