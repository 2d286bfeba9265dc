"""The stage that tells what quantizing has done to tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mobileprep.plan.checks import Frozen, labels_of
from mobileprep.plan.regular_expressions import regex_engine
from mobileprep.plan.running_stages import DamageStage
from mobileprep.plan.sources import data_files
from mobileprep.plan.spec import StageSpec, Upstream, places
from mobileprep.plan.stages import GRAPH
from mobileprep.recipe.model import Target
from mobileprep.recipe.settings import Data

# So few tell which tensors lose most, and cost less than a validation.
_SAMPLES: Final = 16
_NODES: Final = frozenset({"quantize_nodes"})
_WEIGHTS: Final = frozenset(
    {"quantize_weights", "round_weights", "linear_quantize_weights", "cast_weights"}
)


def damage_spec(target: Target, frozen: Frozen, steps: Sequence[str]) -> StageSpec | None:
    """The stage that compares the graph before a target quantizes with the one after.

    Args:
        target: the target.
        frozen: what freezing left.
        steps: the tasks of the target's transforms.

    Returns:
        None where nothing is quantized, there are no samples, or the recipe does not want it.

    Raises:
        CorruptFileError: the samples are not there.
    """
    data = _data(target)
    asked = target.quantization_report
    wanted = {None: _NODES, False: frozenset[str](), True: _NODES | _WEIGHTS}[asked]
    places_of_steps = [at for at, step in enumerate(target.transforms) if step.name in wanted]
    if data is None or not places_of_steps:
        return None
    first, last = places_of_steps[0], places_of_steps[-1]
    stage = DamageStage(
        data=data_files(data),
        reading=data,
        labels=labels_of(target),
        count=_SAMPLES,
        inputs=target.inputs,
        graph=Upstream(steps[first - 1], GRAPH) if first else frozen.graph,
        quantized=Upstream(steps[last], GRAPH),
        interface=frozen.interface,
        assets=frozen.assets,
        regular_expressions=regex_engine(),
    )
    label = f"{last + 1:02d}-{target.transforms[last].name}-damage"
    return StageSpec(label, stage, places(target, "inputs", "outputs"))


def _data(target: Target) -> Data | None:
    """The validation's samples, else the calibration's; none that are not there.

    A range file does without samples, and so does this.
    """
    if target.validation is not None:
        return target.validation.data
    data = None if target.calibration is None else target.calibration.data
    return data if data is not None and data.file.path.exists() else None
