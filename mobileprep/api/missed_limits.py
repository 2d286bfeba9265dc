"""What a build adds to a limit that eight-bit nodes have missed: the layers to leave in float."""

from __future__ import annotations

from typing import Final

from mobileprep.errors import MissedLimitError, MobileprepError
from mobileprep.pipeline.execute import Executor
from mobileprep.plan.search_stages import ChoiceStage
from mobileprep.plan.spec import Stage, TargetPlan
from mobileprep.plan.stages import TransformStage

_QUANTIZER: Final = "quantize_nodes"
# A build that has failed should not take long to say so: samples, and seconds.
_SAMPLES: Final = 8
_SECONDS: Final = 60.0


def with_worst_layers(error: MobileprepError, executor: Executor) -> MobileprepError:
    """An error with a hint that names the layers which lose most, where eight bits may be why.

    Each layer is quantized alone, on few samples and for a minute at most.

    Args:
        error: what a build has failed with.
        executor: of that build.
    """
    if not isinstance(error, MissedLimitError):
        return error
    target = _quantized(error.task, executor)
    if target is None:
        return error
    from mobileprep.api.quantization_debugging import worst_layers  # imports numpy

    try:
        found = worst_layers(target, executor, samples=_SAMPLES, seconds=_SECONDS)
    except MobileprepError:
        return error  # what was missed matters more than why nothing else can be told
    if not found.rule:
        return error
    of = "" if found.measured == found.layers else f" of the first {found.measured}"
    hint = (
        f"{error.hint}; or leave the layers in float that lose most, one at a time on "
        f"{found.samples} samples{of}: under 'quantize', write\n"
        f"    rules: [{found.rule}]"
    )
    return error.at(error.where, hint=hint)


def _quantized(task: str, executor: Executor) -> TargetPlan | None:
    """The target that a stage is of, if its nodes were quantized before that stage."""
    plan = executor.state.plan
    for target in plan.targets:
        if task not in target.tasks:
            continue
        before = target.tasks[: target.tasks.index(task)]
        asked = [plan.stage(one).stage for one in before]
        return target if any(map(_quantizes, asked)) else None
    return None


def _quantizes(stage: Stage) -> bool:
    is_step = isinstance(stage, TransformStage) and stage.transform == _QUANTIZER
    return is_step or isinstance(stage, ChoiceStage)
