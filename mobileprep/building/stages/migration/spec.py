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
    """The ways of a target's graph to TensorFlow Mobile and to LiteRT, ``migration.json``.

    Args:
        before: the transform that quantizes the graph afterwards; empty where none does.
        found: each way; None where they could not be tried.
        untried: why not; empty where they were.
    """

    before: str
    found: Migration | None = None
    untried: str = ""


# What these leave is for TensorFlow's kernels alone: files for LiteRT are quantized in another way.
_EIGHT_BITS: Final = frozenset({"quantize_nodes", "quantize_weights"})


class MigrationStage(Stage, frozen=True, kw_only=True):
    """Tells whether TensorFlow Mobile and LiteRT run a target's graph.

    Args:
        platform: what TensorFlow Mobile is built for.
        before: the transform that quantizes the graph afterwards; empty where none does.
        graph: the graph before that transform, or after all.
        interface: what is fed and fetched.
        assets: the files that the graph reads.
    """

    stage_name: ClassVar[str] = "migration"
    stage_version: ClassVar[int] = 2
    RECORD: ClassVar[str] = "migration.json"
    reported: ClassVar[type[Struct] | None] = MigrationRecord

    platform: Platform
    before: str = ""
    graph: Upstream
    interface: Upstream
    assets: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


def migration_spec(target: Target, frozen: Frozen, steps: Sequence[str]) -> StageSpec | None:
    """The stage that tries a target's graph on TensorFlow Mobile and on LiteRT.

    Returns:
        None where the recipe does not ask for it, or the target is for LiteRT already.
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
