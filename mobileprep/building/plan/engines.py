"""Engines that a stage may use, and the fields of stages that run graphs."""

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
from mobileprep.recipe.settings import Check
from mobileprep.recipe.tree import Key, KeyPath
from mobileprep.recipe.validation_settings import Validation

LITERT: Final = "litert"


OPTIONAL_ENGINES: Final[Mapping[str, str]] = {
    "openvino": "pip install 'mobileprep[openvino]'",
    LITERT: "pip install 'mobileprep[litert]'",
    "tensorflow": "pip install tensorflow-cpu",
}


_MODULES: Final[Mapping[str, str]] = {LITERT: "ai_edge_litert"}


# TensorFlow has several distribution names. Searching all installed packages would be slow.
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
    """Return the engines that a target's stages may use. They are part of the stages' fingerprints.

    For ``auto``, this is the version of every installed optional engine, because the choice depends
    on them. numpy, the interpreter of this package, has no version. The regular expression engine
    is always included. No engine is imported.

    Raises:
        UnsupportedError: the recipe requires an engine that is not installed.
    """
    optional = OPTIONAL_ENGINES.keys()
    names = optional if target.engine == "auto" else optional & {target.engine}
    versions = {name: version for name in sorted(names) if (version := engine_version(name))}
    if target.engine in OPTIONAL_ENGINES and not versions:
        message = f"the recipe asks for the engine {target.engine}, which is not installed"
        hint = f"{OPTIONAL_ENGINES[target.engine]}, or write 'engine: auto'"
        raise UnsupportedError(message, hint, target.place(("engine",)))
    return EngineChoice(target.engine, versions, regex_engine())


def litert_choice(target: Target, settings: Check | Validation | None) -> EngineChoice | None:
    """Return LiteRT's interpreter if a section of the recipe runs a target's .tflite file.

    Args:
        settings: the check, or one of the validations.

    Returns:
        None if the section runs a graph or the target does not have the section.

    Raises:
        UnsupportedError: ai-edge-litert is not installed.
    """
    if settings is None or target.artifact != "tflite" or settings.engine == "graph":
        return None
    keys: KeyPath = ("check",) if isinstance(settings, Check) else target.validation_keys(settings)
    section = keys[0]
    version = engine_version(LITERT)
    if not version:
        message = (
            f"{section} runs the .tflite file, which needs ai-edge-litert; it is not installed"
        )
        hint = (
            f"run {OPTIONAL_ENGINES[LITERT]}, or add 'engine: graph' to '{section}' to measure "
            "the graph before conversion instead of the file"
        )
        raise UnsupportedError(message, hint, target.place((*keys, "engine")))
    return EngineChoice(LITERT, {LITERT: version}, regex_engine())


@cache
def engine_version(name: str) -> str:
    """Return the version of an engine, or an empty string if it is not installed."""
    module = _MODULES.get(name, name)
    spec = importlib.util.find_spec(module)
    # A directory on the path that happens to have the name has no origin.
    if spec is None or spec.origin is None:
        return ""
    # Slow to import, and few recipes need it.
    from importlib import metadata

    for distribution in _DISTRIBUTIONS[name]:
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    names = metadata.packages_distributions().get(module, [])
    return metadata.version(min(names)) if names else _UNKNOWN


class EngineChoice(Struct, frozen=True):
    """Engines that may run a stage's graphs.

    Args:
        name: engine name from the recipe.
        versions: version of every engine that ``auto`` may choose, or of the named engine.
        regular_expressions: the interpreter's regular expression engine, with its version.
    """

    name: str
    versions: Mapping[str, str]
    regular_expressions: str = ""


class RunningStage(Stage, frozen=True, kw_only=True):
    """Common fields of stages that run a graph.

    Args:
        engine: engines that may run the graph.
        graph: the graph.
        interface: the inputs and outputs.
        assets: the files that the graph reads.
    """

    engine: EngineChoice
    graph: Upstream
    interface: Upstream
    assets: Upstream


class Measured(Struct, frozen=True, kw_only=True):
    """The target's model that a stage measures, as opposed to a graph inside the build.

    Args:
        name: for reports: the packaged file, or ``BEFORE_CONVERSION``.
        variable: environment variable with the key of an encrypted file, or an empty string.
        key_id: the ID of that key.
    """

    name: str
    variable: str = ""
    key_id: str = ""


RunningSection: TypeAlias = Literal["check", "validation"]
"""Sections of a recipe that run a target's model."""


class MeasuringStage(RunningStage, frozen=True, kw_only=True):
    """Common fields of stages that run a graph of the build or a target's packaged model.

    Args:
        measured: the target's model, or None for other graphs. If set, ``graph`` is the packaged
            file unless ``lite`` is set.
        lite: the packaged .tflite file, which runs instead of the graph it was converted from.
    """

    measured: Measured | None = None
    lite: Upstream | None = None


BEFORE_CONVERSION: Final = "the graph before conversion"
"""Name of the graph before conversion to .tflite in a basis."""


class EngineRecord(Struct, frozen=True):
    """The engine that ran a graph, and its largest difference from the interpreter.

    Args:
        name: engine name.
        tolerance: the permitted difference.
        version: engine version, or an empty string for the interpreter, which is part of this
            package.
        samples: number of samples that both engines ran; 0 if they were not compared.
        within: the power of ten that bounds the difference, as a fraction of the largest value of
            its tensor; None if the engines were not compared. The exact difference depends on how
            each processor rounds.
        unlike: why the engines were not compared; empty if they were, and for the interpreter.
    """

    name: str
    tolerance: float
    version: str = ""
    samples: int = 0
    within: float | None = None
    unlike: str = ""


def model_of(
    target: Target, settings: Check | Validation, last: Upstream, packaged: Upstream
) -> dict[str, Any]:
    """Return the fields of a ``MeasuringStage`` that runs the packaged model of a target.

    Args:
        settings: the check or validation that runs it.
        packaged: the published model file, encrypted if the recipe says so.
    """
    lite = litert_choice(target, settings) if target.artifact == "tflite" else None
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
    """Check that the packages and engines that a target needs are installed.

    The build reports other packages when a stage needs them, because the stage may be cached.

    Raises:
        UnsupportedError: a package or an engine is not installed.
    """
    for keys, module, package, extra in _packages(target):
        if importlib.util.find_spec(module) is None:
            message = f"this needs the package {package}, which is not installed"
            hint = f"pip install 'mobileprep[{extra}]'"
            raise UnsupportedError(message, hint, target.place(keys))
    if target.validation is not None or target.check is not None:
        engine_choice(target)
    for settings in (target.check, *target.validations):
        litert_choice(target, settings)


def _packages(target: Target) -> Iterator[tuple[tuple[Key, ...], str, str, str]]:
    """Yield the recipe keys that need a package, its module, its name, and its extra."""
    if target.integration is not None:
        yield ("integration",), "jinja2", "Jinja", "integration"
    if target.protect.key is not None:
        yield ("protect", "encrypt"), "cryptography", "cryptography", "encrypt"
    if target.download is not None:
        yield ("download",), "bsdiff4", "bsdiff4", "download"


PYTHON: Final = "Python"


# Built-in transforms that run kernels of arbitrary ops. A test checks this list.
COMPUTING: Final = frozenset(
    {"fold_constants", "fuse_remote_graph", "optimize", "place_remote_graph_arguments"}
)


# Transforms that match regular expressions if the option is set.
_MATCHING: Final = {"quantize_nodes": "rule"}


def step_regex_engine(step: Step) -> str:
    """Return the regular expression engine of a transform, or an empty string if it uses none.

    Transforms from plugins are assumed to use one.
    """
    matches = _MATCHING.get(step.name) in step.options
    runs_any = step.plugin is not None or step.name in COMPUTING or matches
    return regex_engine() if runs_any else ""


@cache
def regex_engine() -> str:
    """Return the name and version of the regular expression engine."""
    version = library_version("re2", "google-re2")
    return f"RE2 (google-re2 {version})" if version else PYTHON
