"""Engines: which ones a stage may use, and the fields of stages that run graphs."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from mobileprep.building.plan.fingerprints import library_version
from mobileprep.building.plan.spec import PUBLISHED, Stage, Upstream
from mobileprep.core.keys import key_from_environment
from mobileprep.errors import UnsupportedError
from mobileprep.recipe.model import Step, Target
from mobileprep.recipe.tree import Key

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


class EngineChoice(Struct, frozen=True):
    """What may run a stage's graphs.

    Args:
        name: as the recipe has it.
        versions: of every engine that ``auto`` may choose, or of the one that is named.
        regular_expressions: what the interpreter runs them by, with its version.
    """

    name: str
    versions: Mapping[str, str]
    regular_expressions: str = ""


class RunningStage(Stage, frozen=True, kw_only=True):
    """What all stages have that run a graph.

    Args:
        engine: what may run it.
        graph: the graph.
        interface: what is fed and fetched.
        assets: the files that the graph reads.
    """

    engine: EngineChoice
    graph: Upstream
    interface: Upstream
    assets: Upstream


class Measured(Struct, frozen=True, kw_only=True):
    """What a stage measures, if that is a target's model and not a graph inside the build.

    Args:
        name: for reports: the packaged file, or ``BEFORE_CONVERSION``.
        variable: the environment variable with the key of an encrypted file; else empty.
        key_id: the id of that key.
    """

    name: str
    variable: str = ""
    key_id: str = ""


RunningSection: TypeAlias = Literal["check", "validation"]
"""The sections of a recipe that run a target's model."""


class MeasuringStage(RunningStage, frozen=True, kw_only=True):
    """What stages share that run a graph of the build or a target's packaged model.

    Args:
        measured: the target's model; None for other graphs. Then ``graph`` is the packaged file,
            unless ``lite`` is.
        lite: the packaged .tflite file, which runs in place of the graph it was converted from.
    """

    measured: Measured | None = None
    lite: Upstream | None = None


BEFORE_CONVERSION: Final = "the graph before conversion"
"""Name of the graph before conversion to .tflite in a basis."""


class EngineRecord(Struct, frozen=True):
    """What ran a graph, and how it was compared with the interpreter.

    Args:
        name: the engine's.
        tolerance: what the difference may be.
        version: its version; empty for the interpreter, which is part of this package.
        samples: how many were run by both; 0 where they were not compared.
        within: the power of ten that the difference stays below, as a share of the largest value
            of its tensor; None where they were not compared. The difference itself is rounding,
            which each processor does in its way.
        unlike: why they were not compared; empty where they were, and for the interpreter.
    """

    name: str
    tolerance: float
    version: str = ""
    samples: int = 0
    within: float | None = None
    unlike: str = ""


def model_of(
    target: Target, section: RunningSection, last: Upstream, packaged: Upstream
) -> dict[str, Any]:
    """The fields of a ``MeasuringStage`` that runs the packaged model of a target.

    Args:
        packaged: the model file as it ships, encrypted if the recipe says so.
    """
    lite = litert_choice(target, section) if target.artifact == "tflite" else None
    if target.artifact == "tflite" and lite is None:
        measured = Measured(name=BEFORE_CONVERSION)
        return {"graph": last, "engine": engine_choice(target), "measured": measured}
    name = packaged.output.removeprefix(PUBLISHED)
    if target.artifact == "memmapped":
        name += ", memory-mapped"
    measured = Measured(name=name)
    variable = target.protect.key
    if variable is not None:
        key = key_from_environment(variable, target.place(("protect", "encrypt", "key")))
        name += ", decrypted"
        measured = Measured(name=name, variable=variable, key_id=key.id.hex())
    if lite is not None:
        return {"graph": last, "engine": lite, "lite": packaged, "measured": measured}
    return {"graph": packaged, "engine": engine_choice(target), "measured": measured}


def check_installed(target: Target) -> None:
    """Make sure that the packages and engines are installed that a target asks for.

    A build tells of packages when a stage needs them: another machine may have run it.
    """
    for keys, module, package, extra in _packages(target):
        if importlib.util.find_spec(module) is None:
            message = f"this needs the package {package}, which is not installed"
            hint = f"pip install 'mobileprep[{extra}]'"
            raise UnsupportedError(message, hint, target.place(keys))
    if target.validation is not None or target.check is not None:
        engine_choice(target)
    litert_choice(target, "check")
    litert_choice(target, "validation")


def _packages(target: Target) -> Iterator[tuple[tuple[Key, ...], str, str, str]]:
    """The keys that tell of each need, the module, its package, and the extra that brings it."""
    if target.integration is not None:
        yield ("integration",), "jinja2", "Jinja", "integration"
    if target.protect.key is not None:
        yield ("protect", "encrypt"), "cryptography", "cryptography", "encrypt"


PYTHON: Final = "Python"


_MODULE: Final = "re2"


_DISTRIBUTION: Final = "google-re2"


# The package's own transforms that run kernels of any op; a test finds them by running all.
COMPUTING: Final = frozenset(
    {"fold_constants", "fuse_remote_graph", "optimize", "place_remote_graph_arguments"}
)


# Those that run regular expressions where an option is given.
_MATCHING: Final = {"quantize_nodes": "rule"}


def step_regex_engine(step: Step) -> str:
    """What a transform may run regular expressions by; empty for one that computes no nodes.

    What a transform from outside the package does is not known, so it counts as one that does.
    """
    matches = _MATCHING.get(step.name) in step.options
    runs_any = step.plugin is not None or step.name in COMPUTING or matches
    return regex_engine() if runs_any else ""


@cache
def regex_engine() -> str:
    """The engine for regular expressions, RE2 with its version."""
    version = library_version(_MODULE, _DISTRIBUTION)
    return f"RE2 ({_DISTRIBUTION} {version})" if version else PYTHON
