"""Stage specifications: what each stage of a build reads, is told, and leaves. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

STAGE_VERSIONS: Final[Mapping[str, int]] = {
    "freeze": 2,
    "transform": 3,
    "package": 2,
    "evaluate": 4,
    "validate": 3,
    "samples": 1,
    "check": 3,
}
"""Raised by one whenever a stage's outputs change for the same inputs."""


PLUGIN_SLOT: Final = "plugin"
"""The slot of a transform stage for the code of a transform from outside the package."""


def file_slot(parameter: str, index: int | None) -> str:
    """The slot of a transform stage for a file that a parameter names.

    Args:
        parameter: the parameter, which is an identifier.
        index: which of its files, where it takes a list.
    """
    return f"parameter {parameter}" if index is None else f"parameter {parameter} {index + 1}"


@dataclass(frozen=True)
class InputFile:
    """A file from outside the build.

    Args:
        name: as the recipe knows it, relative and with ``/``; part of the fingerprint.
        path: where it lies on this machine; not part of the fingerprint.
    """

    name: str
    path: Path


@dataclass(frozen=True)
class Upstream:
    """One output of an earlier stage."""

    task: str
    output: str


@dataclass(frozen=True)
class StageSpec:
    """One stage of a plan.

    Args:
        task: its name, unique in the plan: ``digits/03-fold_constants``.
        stage: which stage it is, a key of ``STAGE_VERSIONS``.
        parameters: everything it is told, as JSON-able plain data.
        files: files from outside, by slot.
        roots: the paths that the recipe names them by, by slot; a checkpoint's is its prefix.
        upstream: outputs of earlier stages, by slot.
        outputs: the names of the files it always leaves; more may lie below ``files/``.
        places: where in the recipe its parameters stand, for messages; not fingerprinted.
    """

    task: str
    stage: str
    parameters: Mapping[str, Any]
    files: Mapping[str, tuple[InputFile, ...]] = field(default_factory=dict)
    roots: Mapping[str, Path] = field(default_factory=dict)
    upstream: Mapping[str, Upstream] = field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetPlan:
    """What one target's folder will hold, and where each part comes from.

    Args:
        recipe: the recipe's name.
        target: the target's name.
        tasks: the tasks that must have run, in order; their outputs below ``files/`` make up
            the folder.
        steps: the outputs that record what each step did, in order.
        checks: the outputs that tell how far each step's graph is from the source; may be empty.
        facts: further outputs that the report reads, by role.
        sources: the files from outside that the target depends on.
        settings: the target's settings as the manifest states them.
    """

    recipe: str
    target: str
    tasks: tuple[str, ...]
    steps: tuple[Upstream, ...]
    checks: tuple[Upstream, ...]
    facts: Mapping[str, Upstream]
    sources: tuple[InputFile, ...]
    settings: Mapping[str, Any]

    @property
    def folder(self) -> str:
        """The folder below the output folder, with ``/``."""
        return f"{self.recipe}/{self.target}"


@dataclass(frozen=True)
class Plan:
    """All stages, each after those that it needs, and the targets that they serve."""

    stages: tuple[StageSpec, ...]
    targets: tuple[TargetPlan, ...]

    def stage(self, task: str) -> StageSpec:
        """The stage of that task name."""
        return next(s for s in self.stages if s.task == task)
