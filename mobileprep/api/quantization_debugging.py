"""Which tensors and which layers of a target lose most by quantization."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from mobileprep.api.quantized_target import QUANTIZER, QuantizedTarget, feeds_of, quantized_target
from mobileprep.api.targets import plan_state
from mobileprep.calibration.damage import TensorDamage, tensor_damage
from mobileprep.calibration.layers import (
    LayerDamage,
    OutputComparison,
    OutputDamage,
    layer_damage,
    recipe_rule,
    worst_alone,
)
from mobileprep.datasets.source import SampleChoice
from mobileprep.errors import UsageError
from mobileprep.frozen import dataclass
from mobileprep.pipeline.execute import Executor
from mobileprep.pipeline.upkeep import store_bound
from mobileprep.plan.portable import portable_recipe
from mobileprep.plan.spec import Plan, TargetPlan
from mobileprep.recipe.model import Recipe

_NAMED: Final = 3
_SAMPLES: Final = 16


@dataclass(frozen=True)
class QuantizationDamage:
    """What quantization does to one target.

    Args:
        recipe: the recipe's name.
        target: the target's folder.
        data: the samples' file, as the recipe names it.
        samples: how many were run.
        whole: how far the outputs are from float with all layers quantized that are to be.
        layers: what each layer does to them, the worst first.
        tensors: what was done to each tensor, the worst first.
        rule: the rule that leaves the worst layers in float, as ``quantize.rules`` takes it; empty
            without layers.
    """

    recipe: str
    target: str
    data: str
    samples: int
    whole: OutputDamage
    layers: tuple[LayerDamage, ...]
    tensors: tuple[TensorDamage, ...]
    rule: str


def debug_quantization(
    recipe: Recipe,
    target: str = "",
    *,
    samples: int | None = None,
    seed: int = 0,
    warn: Callable[[str], None] = lambda _: None,
    tell: Callable[[int, int], None] = lambda done, count: None,
) -> QuantizationDamage:
    """Compare a target's float graph with what ``quantize_nodes`` makes of it.

    The stages before are built, unless they have been.

    Args:
        recipe: the recipe.
        target: the name of the target, or its folder; may be empty where one alone is quantized.
        samples: how many to run, of the validation's data, or else of the calibration's; 16 without
            it, or all where there are fewer.
        seed: which, where there are more.
        warn: called with what the user should know.
        tell: called after each layer with how many are done, and how many there are.

    Raises:
        UsageError: there is no such target, it is not quantized so, or it has no data.
        AccuracyError: the data does not fit, or has fewer samples than are named.
        MobileprepError: what the stages before raise.
    """
    alone = _one_target(recipe, target)
    state = plan_state([alone])
    bound = store_bound(os.environ)
    executor = Executor(state, lambda *_: None, lambda task, text: warn(f"{task}: {text}"))
    try:
        with quantized_target(state.plan, executor) as subject:
            return _measured(alone, subject, samples, seed, warn, tell)
    finally:
        state.store.files.save()
        state.store.finish(bound)


@dataclass(frozen=True)
class WorstLayers:
    """The layers whose quantization does most to a target's outputs.

    Args:
        rule: the rule that leaves the worst ones in float, as ``quantize.rules`` takes it; empty
            where no layer is quantized.
        measured: how many layers were measured, one at a time.
        layers: how many are quantized.
        samples: on how many samples.
    """

    rule: str
    measured: int
    layers: int
    samples: int


def worst_layers(
    target: TargetPlan, executor: Executor, *, samples: int, seconds: float
) -> WorstLayers:
    """Find the layers that a target better leaves in float.

    The stages up to the one that quantizes have run. Of ``quantize: auto``, the layers that it has
    left in float count no more.

    Args:
        target: the target, whose chain has ``quantize_nodes``.
        executor: of the build.
        samples: how many to run at most.
        seconds: after how long no further layer is measured.

    Raises:
        UsageError: the target has no data.
        MobileprepError: a graph cannot be run, or the data not be read.
    """
    stages = tuple(spec for spec in executor.state.plan.stages if spec.task in target.tasks)
    until = time.monotonic() + seconds
    with quantized_target(Plan(stages, ()), executor, chosen=True) as subject:
        choice = SampleChoice(samples, exactly=False)
        feeds, count = feeds_of(subject, choice, lambda _: None)
        comparison = OutputComparison(subject.graph, subject.interface.outputs, feeds)
        found, layers = worst_alone(
            subject.graph, subject.quantized, comparison, lambda: time.monotonic() > until
        )
    return WorstLayers(_rule(found[:_NAMED]), len(found), layers, count)


def _measured(
    recipe: Recipe,
    subject: QuantizedTarget,
    samples: int | None,
    seed: int,
    warn: Callable[[str], None],
    tell: Callable[[int, int], None],
) -> QuantizationDamage:
    graph, interface = subject.graph, subject.interface
    choice = SampleChoice(samples or _SAMPLES, seed, exactly=samples is not None)
    feeds, count = feeds_of(subject, choice, warn)
    comparison = OutputComparison(graph, interface.outputs, feeds)
    quantized = subject.quantized(())
    layers = layer_damage(graph, subject.quantized, comparison, tell)
    worst = [layer.layer for layer in layers[:_NAMED]]
    return QuantizationDamage(
        recipe.name,
        recipe.targets[0].folder,
        subject.files.name,
        count,
        comparison.damage(quantized),
        layers,
        tensor_damage(graph, quantized, feeds),
        recipe_rule("float", worst) if worst else "",
    )


def _one_target(recipe: Recipe, name: str) -> Recipe:
    """The recipe with the target alone."""
    # While it is whole: the names of files go by all that a recipe names.
    recipe = portable_recipe(recipe)
    known = [t for t in recipe.targets if any(s.name == QUANTIZER for s in t.transforms)]
    found = [t for t in known if not name or name in (t.name, t.folder)]
    if len(found) == 1:
        return replace(recipe, targets=(found[0],))
    names = ", ".join(t.folder for t in known)
    if not known:
        message = f"no target of {recipe.name!r} has {QUANTIZER} in its chain"
        raise UsageError(message, "write 'quantize: {mode: nodes}' in a target")
    if name:
        message = f"{recipe.name!r} has no target {name!r} whose nodes are quantized"
        raise UsageError(message, f"there are {names}")
    message = f"{len(known)} targets of {recipe.name!r} are quantized"
    raise UsageError(message, f"name one of them with --target: {names}")


def _rule(layers: Sequence[str]) -> str:
    """The rule that leaves layers in float, as recipes take it; empty for none."""
    return recipe_rule("float", layers) if layers else ""
