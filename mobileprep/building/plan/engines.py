"""Which engines a stage may run graphs with, and their versions: part of what decides results."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Mapping
from functools import cache
from typing import Final

from mobileprep.building.plan.regular_expressions import regex_engine
from mobileprep.building.plan.running_stages import EngineChoice, RunningSection
from mobileprep.errors import UnsupportedError
from mobileprep.recipe.model import Target

LITERT: Final = "litert"
OPTIONAL_ENGINES: Final[Mapping[str, str]] = {
    "openvino": "pip install 'mobileprep[openvino]'",
    LITERT: "pip install 'mobileprep[litert]'",
    "tensorflow": "pip install tensorflow-cpu",
}
_MODULES: Final[Mapping[str, str]] = {LITERT: "ai_edge_litert"}
# TensorFlow comes under several names; looking through all that is installed would take long.
_DISTRIBUTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "openvino": ("openvino", "openvino-nightly"),
    LITERT: ("ai-edge-litert", "ai-edge-litert-nightly"),
    "tensorflow": (
        "tensorflow",
        "tensorflow-cpu",
        "tensorflow-macos",
        "tensorflow-intel",
        "intel-tensorflow",
        "tf-nightly",
        "tf-nightly-cpu",
    ),
}
_UNKNOWN: Final = "unknown"


def engine_choice(target: Target) -> EngineChoice:
    """What a stage that runs graphs is told of engines, and so what its fingerprint has of them.

    ``auto`` comes with the version of every engine there is to choose from, because which one is
    taken depends on them; numpy, the interpreter of this package, comes with none. What runs
    regular expressions there is told with each. Nothing is imported for it.
    """
    known = OPTIONAL_ENGINES.keys()
    names = known if target.engine == "auto" else known & {target.engine}
    versions = {name: found for name in sorted(names) if (found := engine_version(name))}
    if target.engine in OPTIONAL_ENGINES and not versions:
        message = f"the recipe asks for the engine {target.engine}, which is not installed"
        hint = f"{OPTIONAL_ENGINES[target.engine]}, or write 'engine: auto'"
        raise UnsupportedError(message, hint, target.place(("engine",)))
    return EngineChoice(target.engine, versions, regex_engine())


def litert_choice(target: Target, section: RunningSection) -> EngineChoice | None:
    """LiteRT's interpreter, if a section of the recipe runs a target's .tflite file.

    Returns:
        None if the section runs a graph, or the target does not have it.
    """
    settings = target.check if section == "check" else target.validation
    if settings is None or target.artifact != "tflite" or settings.engine == "graph":
        return None
    version = engine_version(LITERT)
    if not version:
        message = (
            f"{section} runs the .tflite file, which needs ai-edge-litert; it is not installed"
        )
        hint = (
            f"run {OPTIONAL_ENGINES[LITERT]}, or add 'engine: graph' to '{section}' to measure "
            "the graph before conversion instead of the file"
        )
        raise UnsupportedError(message, hint, target.place((section, "engine")))
    return EngineChoice(LITERT, {LITERT: version}, regex_engine())


@cache
def engine_version(name: str) -> str:
    """The version of an installed engine; empty where it is not installed."""
    module = _MODULES.get(name, name)
    found = importlib.util.find_spec(module)
    # A folder of that name that happens to be in the path has no origin.
    if found is None or found.origin is None:
        return ""
    # Costs start-up time, and few recipes need it.
    from importlib import metadata

    for distribution in _DISTRIBUTIONS[name]:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    names = metadata.packages_distributions().get(module, [])
    return metadata.version(min(names)) if names else _UNKNOWN
