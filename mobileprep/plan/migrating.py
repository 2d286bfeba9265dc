"""The stage that tells which runtimes run a target's model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.plan.app_stages import MigrationStage
from mobileprep.plan.checks import Frozen
from mobileprep.plan.library_versions import library_version
from mobileprep.plan.spec import StageSpec, Upstream, places
from mobileprep.plan.stages import GRAPH
from mobileprep.recipe.model import Target

_FLATBUFFERS: Final = "flatbuffers"
# What these leave is for TensorFlow's kernels alone: files for LiteRT are quantized in another way.
_EIGHT_BITS: Final = frozenset({"quantize_nodes", "quantize_weights"})


def migration_spec(target: Target, frozen: Frozen, steps: Sequence[str]) -> StageSpec | None:
    """The stage that tries a target's graph on TensorFlow Mobile and on LiteRT.

    Args:
        target: the target.
        frozen: what freezing left.
        steps: the tasks of the target's transforms.

    Returns:
        None where the recipe does not ask for it, or the target is for LiteRT already.
    """
    if not target.migration_report or target.artifact == "tflite":
        return None
    names = [step.name for step in target.transforms]
    first = next((at for at, name in enumerate(names) if name in _EIGHT_BITS), len(names))
    stage = MigrationStage(
        platform=target.platform,
        flatbuffers=library_version(_FLATBUFFERS, _FLATBUFFERS),
        before="".join(names[first : first + 1]),
        graph=Upstream(steps[first - 1], GRAPH) if first else frozen.graph,
        interface=frozen.interface,
        assets=frozen.assets,
    )
    return StageSpec(
        f"{target.folder}/migration", stage, places(target, "platform", "inputs", "outputs")
    )
