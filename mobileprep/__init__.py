"""Prepare trained TensorFlow 1-style models for mobile and embedded apps.

The names in ``__all__`` and ``mobileprep.plugin`` are the public API; ``docs/reference/python.md``
describes it. Other modules can change with each release. Names are imported when they are first
used, so ``import mobileprep`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mobileprep.building.builder import Build, BuildResult, BuiltTarget, build, plan
    from mobileprep.building.calibrating import CalibrationResult, calibrate
    from mobileprep.building.choosing import Candidates, LabeledSamples, choose
    from mobileprep.building.device_measurements import (
        ImportedMeasurement,
        device_script,
        fit_profile,
        import_measurement,
    )
    from mobileprep.building.fit import validate
    from mobileprep.building.litert_files import ConversionResult, to_tflite
    from mobileprep.building.lock import LockResult, lock
    from mobileprep.building.report.collect import Report
    from mobileprep.building.tasks import recipe_tasks
    from mobileprep.building.transforming import TransformResult, transform
    from mobileprep.building.verdicts import Verdict
    from mobileprep.building.verify import VerifiedFile, VerifyResult, verify
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
    from mobileprep.freezing.loading import freeze
    from mobileprep.freezing.model import FreezeOptions, FreezeResult
    from mobileprep.graph.compare import GraphDifference, compare
    from mobileprep.graph.files import load_graph, save_graph
    from mobileprep.graph.graph import Graph
    from mobileprep.inspection.benchmark import Benchmark, benchmark, run
    from mobileprep.inspection.differing import ModelDifference, diff
    from mobileprep.inspection.drawing_files import draw
    from mobileprep.inspection.summarizing import Summary, summarize
    from mobileprep.recipe.load import load_recipe
    from mobileprep.recipe.model import Recipe
    from mobileprep.targets.headers import registration_header
    from mobileprep.targets.memmapped import MemmapResult, memmap
    from mobileprep.targets.migration.survey import MigrationResult, migrate
    from mobileprep.targets.op_facts import OpFacts, op_facts

__version__ = "0.1.0"

# The same names as the imports for type checkers above; a test compares the two.
_HOMES = {
    "mobileprep.inspection.benchmark": ("Benchmark", "benchmark", "run"),
    "mobileprep.building.builder": ("Build", "BuildResult", "BuiltTarget", "build", "plan"),
    "mobileprep.building.choosing": ("Candidates", "LabeledSamples", "choose"),
    "mobileprep.building.device_measurements": (
        "ImportedMeasurement",
        "fit_profile",
        "device_script",
        "import_measurement",
    ),
    "mobileprep.building.fit": ("validate",),
    "mobileprep.building.litert_files": ("ConversionResult", "to_tflite"),
    "mobileprep.building.verdicts": ("Verdict",),
    "mobileprep.graph.compare": ("GraphDifference", "compare"),
    "mobileprep.inspection.drawing_files": ("draw",),
    "mobileprep.targets.memmapped": ("MemmapResult", "memmap"),
    "mobileprep.targets.migration.survey": ("MigrationResult", "migrate"),
    "mobileprep.targets.op_facts": ("OpFacts", "op_facts"),
    "mobileprep.building.calibrating": ("CalibrationResult", "calibrate"),
    "mobileprep.building.transforming": ("TransformResult", "transform"),
    "mobileprep.freezing.loading": ("freeze",),
    "mobileprep.graph.files": ("load_graph", "save_graph"),
    "mobileprep.targets.headers": ("registration_header",),
    "mobileprep.inspection.differing": ("ModelDifference", "diff"),
    "mobileprep.inspection.summarizing": ("Summary", "summarize"),
    "mobileprep.building.lock": ("LockResult", "lock"),
    "mobileprep.recipe.load": ("load_recipe",),
    "mobileprep.building.tasks": ("recipe_tasks",),
    "mobileprep.building.verify": ("VerifiedFile", "VerifyResult", "verify"),
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
    "CalibrationResult",
    "Candidates",
    "ConversionResult",
    "CorruptFileError",
    "FreezeOptions",
    "FreezeResult",
    "Graph",
    "GraphDifference",
    "ImportedMeasurement",
    "InternalError",
    "InvalidGraphError",
    "LabeledSamples",
    "LockResult",
    "MemmapResult",
    "MigrationResult",
    "MobileprepError",
    "MobileprepWarning",
    "ModelDifference",
    "OpFacts",
    "Recipe",
    "RecipeError",
    "Report",
    "Summary",
    "TransformError",
    "TransformResult",
    "UnsupportedError",
    "UsageError",
    "Verdict",
    "VerifiedFile",
    "VerifyResult",
    "benchmark",
    "build",
    "calibrate",
    "choose",
    "compare",
    "device_script",
    "diff",
    "draw",
    "fit_profile",
    "freeze",
    "import_measurement",
    "load_graph",
    "load_recipe",
    "lock",
    "memmap",
    "migrate",
    "op_facts",
    "plan",
    "recipe_tasks",
    "registration_header",
    "run",
    "save_graph",
    "summarize",
    "to_tflite",
    "transform",
    "validate",
    "verify",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use and cache it in the module."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
