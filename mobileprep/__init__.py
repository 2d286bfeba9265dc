"""mobileprep: from a trained TensorFlow 1-style model to what a mobile app ships.

The names in ``__all__`` are the public face, with ``mobileprep.plugin`` for transforms of one's
own; ``docs/python.md`` shows them. All else may change from release to release. Each is imported
when it is first asked for, so that ``import mobileprep`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mobileprep.api.benchmark import Benchmark, benchmark
    from mobileprep.api.building import Build, BuiltTarget, build
    from mobileprep.api.calibrating import Calibrated, calibrate
    from mobileprep.api.chains import Transformed, transform
    from mobileprep.api.freezing import freeze
    from mobileprep.api.graphs import load_graph, save_graph
    from mobileprep.api.headers import registration_header
    from mobileprep.api.inspecting.differing import ModelDifference, diff
    from mobileprep.api.inspecting.summarizing import Summary, summarize
    from mobileprep.api.lock import Locked, lock
    from mobileprep.api.recipes import load_recipe
    from mobileprep.api.running import run
    from mobileprep.api.tasks import recipe_tasks
    from mobileprep.api.verify import CheckedFile, CheckedFolder, verify
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
    from mobileprep.freezing.model import FreezeOptions, FreezeResult
    from mobileprep.ir.graph import Graph
    from mobileprep.recipe.model import Recipe
    from mobileprep.report.collect import Report

__version__ = "0.1.0"

# As imported above for those who check types; a test holds the two together.
_HOMES = {
    "mobileprep.api.benchmark": ("Benchmark", "benchmark"),
    "mobileprep.api.building": ("Build", "BuiltTarget", "build"),
    "mobileprep.api.calibrating": ("Calibrated", "calibrate"),
    "mobileprep.api.chains": ("Transformed", "transform"),
    "mobileprep.api.freezing": ("freeze",),
    "mobileprep.api.graphs": ("load_graph", "save_graph"),
    "mobileprep.api.headers": ("registration_header",),
    "mobileprep.api.inspecting.differing": ("ModelDifference", "diff"),
    "mobileprep.api.inspecting.summarizing": ("Summary", "summarize"),
    "mobileprep.api.lock": ("Locked", "lock"),
    "mobileprep.api.recipes": ("load_recipe",),
    "mobileprep.api.running": ("run",),
    "mobileprep.api.tasks": ("recipe_tasks",),
    "mobileprep.api.verify": ("CheckedFile", "CheckedFolder", "verify"),
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
    "mobileprep.ir.graph": ("Graph",),
    "mobileprep.recipe.model": ("Recipe",),
    "mobileprep.report.collect": ("Report",),
}

__all__ = [
    "AccuracyError",
    "ArtifactError",
    "Benchmark",
    "Build",
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
