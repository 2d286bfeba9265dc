"""The stage `migration`: its parameters, inputs, outputs, and record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from msgspec import Struct

from mobileprep.building.plan.spec import Stage, StageSpec, Upstream, places
from mobileprep.building.stages.freeze.spec import GRAPH, Frozen
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Platform
from mobileprep.targets.migration.records import Migration


class MigrationRecord(Struct, frozen=True):
    """Migration of a target's graph to TensorFlow Mobile and LiteRT, ``migration.json``.

    Args:
        before: transform that quantizes the graph afterwards; empty if there is none.
        found: result for each runtime; None if they could not be tried.
        untried: why they could not be tried; empty if they were.
    """

    before: str
    found: Migration | None = None
    untried: str = ""


# The results run only on TensorFlow's kernels. .tflite files are quantized in another way.
_EIGHT_BITS: Final = frozenset({"quantize_nodes", "quantize_weights"})


class MigrationStage(Stage, frozen=True, kw_only=True):
    """Determine whether TensorFlow Mobile and LiteRT can run a target's graph.

    Args:
        platform: platform of TensorFlow Mobile.
        before: transform that quantizes the graph afterwards; empty if there is none.
        graph: the graph before that transform, or after all transforms.
        interface: inputs and outputs.
        assets: files that the graph reads.
    """

    stage_name: ClassVar[str] = "migration"
    stage_version: ClassVar[int] = 3
    RECORD: ClassVar[str] = "migration.json"
    reported: ClassVar[type[Struct] | None] = MigrationRecord

    platform: Platform
    before: str = ""
    graph: Upstream
    interface: Upstream
    assets: Upstream


def migration_spec(target: Target, frozen: Frozen, steps: Sequence[str]) -> StageSpec | None:
    """Return the stage that tries a target's graph on TensorFlow Mobile and LiteRT.

    Returns:
        None if the recipe does not ask for it, or the target is a .tflite file.
    """
    if not target.migration_report or target.artifact == "tflite":
        return None
    names = [step.name for step in target.transforms]
    first = next((at for at, name in enumerate(names) if name in _EIGHT_BITS), len(names))
    stage = MigrationStage(
        platform=target.platform,
        before="".join(names[first : first + 1]),
        graph=Upstream(steps[first - 1], GRAPH) if first else frozen.graph,
        interface=frozen.interface,
        assets=frozen.assets,
    )
    return StageSpec(
        f"{target.folder}/migration", stage, places(target, "platform", "inputs", "outputs")
    )
