"""The stages of ``check``: for the samples, for each transform, and for the packaged model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.building.plan.engines import (
    LITERT,
    engine_choice,
    engine_version,
    litert_choice,
)
from mobileprep.building.plan.records import BEFORE_CONVERSION
from mobileprep.building.plan.running_stages import (
    CheckStage,
    DefaultCheckStage,
    Measured,
    RunningSection,
    SamplesStage,
)
from mobileprep.building.plan.sources import data_files
from mobileprep.building.plan.spec import PUBLISHED, StageSpec, Upstream, places
from mobileprep.building.plan.stages import ASSETS, GRAPH, INTERFACE
from mobileprep.core.keys import key_from_environment
from mobileprep.recipe.model import Step, Target
from mobileprep.recipe.settings import Check, Data
from mobileprep.recipe.tree import plain
from mobileprep.recipe.validation_settings import USUAL_LABELS


class Frozen(Struct, frozen=True):
    """What a freeze stage leaves for the stages that run a graph."""

    graph: Upstream
    interface: Upstream
    assets: Upstream


def frozen_by(task: str) -> Frozen:
    """What the freeze stage of that task leaves."""
    return Frozen(Upstream(task, GRAPH), Upstream(task, INTERFACE), Upstream(task, ASSETS))


def samples_spec(target: Target, check: Check, frozen: Frozen) -> StageSpec:
    """The stage that finds or draws the samples, and runs the source on them."""
    data, section = check.data, "check"
    if data is None and target.validation is not None:
        data, section = target.validation.data, "validation"
    stage = SamplesStage(
        data=None if data is None else data_files(data),
        reading=data,
        section=section,
        labels=labels_of(target),
        count=check.samples,
        inputs=target.inputs,
        engine=engine_choice(target),
        graph=frozen.graph,
        interface=frozen.interface,
        assets=frozen.assets,
    )
    where = places(target, "check", "inputs", "outputs", "engine")
    return StageSpec("samples", stage, {**where, "data": target.place((section, "data"))})


def labels_of(target: Target) -> str:
    """The name of the labels, which are no input even where nobody asks for them."""
    metrics = () if target.validation is None else target.validation.metrics
    return next((m.labels for m in metrics if m.labels), USUAL_LABELS)


def check_spec(
    target: Target,
    check: Check,
    label: str,
    step: Step,
    graph: Upstream,
    frozen: Frozen,
    samples: str,
) -> StageSpec:
    """The stage that compares the graph after a step with the source."""
    stage = CheckStage(
        step=step.name,
        max_difference=check.max_difference,
        engine=engine_choice(target),
        graph=graph,
        interface=frozen.interface,
        assets=frozen.assets,
        samples=Upstream(samples, SamplesStage.FED),
        expected=Upstream(samples, SamplesStage.EXPECTED),
    )
    return StageSpec(
        f"{label}-check",
        stage,
        {
            "engine": target.place(("engine",)),
            "max_difference": target.place(("check", "max_difference")),
            "transforms": step.place,
        },
    )


def default_samples_spec(target: Target, frozen: Frozen) -> StageSpec:
    """The samples of a default check: those of the calibration if they exist, else drawn ones."""
    spec = samples_spec(_on_interpreter(target), Check(_calibration_data(target)), frozen)
    assert isinstance(spec.stage, SamplesStage)
    stage = replace(spec.stage, section="calibration", optional=True)
    return replace(spec, task="default-samples", stage=stage)


def default_check_spec(
    target: Target, frozen: Frozen, steps: Sequence[str], file: Upstream, samples: str
) -> StageSpec:
    """The stage that compares what quantizing made with the source."""
    is_file = quantizes_file(target)
    if is_file:
        number, name, place = 0, f"{target.artifact} {target.quantize.mode}", ""
        alternatives = alternatives_to_file(target)
    else:
        number = quantizing_steps(target)[-1]
        step = target.transforms[number - 1]
        name, place = step.name, step.place
        alternatives = alternatives_to_step(target, step)
    # A file is compared as such; its graph is what it was made of.
    stage = DefaultCheckStage(
        step=name,
        number=number,
        alternatives=tuple(alternatives),
        litert=engine_version(LITERT) if is_file else "",
        file=file if is_file else None,
        engine=engine_choice(_on_interpreter(target)),
        graph=Upstream(steps[number - 1], GRAPH) if steps else frozen.graph,
        interface=frozen.interface,
        assets=frozen.assets,
        samples=Upstream(samples, SamplesStage.FED),
        expected=Upstream(samples, SamplesStage.EXPECTED),
        drawn=Upstream(samples, SamplesStage.RECORD),
    )
    label = f"{target.folder}/default-check" if is_file else f"{number:02d}-{name}-check"
    return StageSpec(label, stage, {"transforms": place} if place else {})


def _on_interpreter(target: Target) -> Target:
    """The target run by this package's interpreter, which is always installed."""
    return replace(target, engine="numpy")


def _calibration_data(target: Target) -> Data | None:
    data = None if target.calibration is None else target.calibration.data
    return data if data is not None and data.file.path.exists() else None


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


def package_check_spec(
    target: Target,
    check: Check,
    model: Mapping[str, Any],
    frozen: Frozen,
    samples: str,
    earlier: Sequence[str],
) -> StageSpec:
    """The stage that compares the packaged model with the source."""
    stage = CheckStage(
        earlier=tuple(Upstream(task, CheckStage.RECORD) for task in earlier),
        max_difference=check.max_difference,
        interface=frozen.interface,
        assets=frozen.assets,
        samples=Upstream(samples, SamplesStage.FED),
        expected=Upstream(samples, SamplesStage.EXPECTED),
        **model,
    )
    where = {
        **places(target, "check", "engine", "protect"),
        "max_difference": target.place(("check", "max_difference")),
        "transforms": target.place(("check",)),
    }
    return StageSpec(f"{target.folder}/check", stage, where)


QUANTIZERS: Final = frozenset(
    {"quantize_weights", "linear_quantize_weights", "round_weights", "cast_weights"}
    | {"quantize_nodes"}
)
"""The transforms that store or compute numbers in fewer bits."""
_CHANNEL: Final = "`quantize: {mode: weights, granularity: channel}`"
_EQUALIZE: Final = "`then: [equalize_ranges]`"
_REPAIR: Final = "`repair: [equalize_ranges]` in `quantize`"
_FLOAT16: Final = "`quantize: float16`"
_EIGHT_BITS: Final = "`bits: 8`"


def needs_default_check(target: Target) -> bool:
    """Whether a target quantizes, and nothing in its recipe compares the result with the source.

    ``check: false`` turns the default check off.
    """
    if target.check is not None or target.validation is not None:
        return False
    said = None if target.tree is None else target.tree.get("check")
    is_off = said is not None and plain(said) is False
    return not is_off and (quantizes_file(target) or bool(quantizing_steps(target)))


def quantizes_file(target: Target) -> bool:
    """Whether the artifact itself is quantized, and not the graph that it is made of."""
    return target.artifact == "tflite" and target.quantize.mode != "none"


def quantizing_steps(target: Target) -> list[int]:
    """The numbers of the steps that quantize, from 1."""
    chain = enumerate(target.transforms, start=1)
    return [number for number, step in chain if step.name in QUANTIZERS]


def alternatives_to_step(target: Target, step: Step) -> Iterator[str]:
    """What changes outputs less than a transform does, in order of cost."""
    has_scales = any(s.name == "equalize_ranges" for s in target.transforms)
    if step.name == "quantize_nodes":
        yield from () if has_scales else (_REPAIR,)
        yield _CHANNEL
    elif step.name == "linear_quantize_weights" and step.options.get("bits", 8) != 8:
        yield _EIGHT_BITS
    if step.name in ("quantize_weights", "linear_quantize_weights"):
        by_channel = step.options.get("granularity", "channel") == "channel"
        if step.name == "quantize_weights" or not by_channel:
            yield _CHANNEL
        yield from () if has_scales else (_EQUALIZE,)
    if step.name != "cast_weights":
        yield _FLOAT16


def alternatives_to_file(target: Target) -> Iterator[str]:
    """What changes outputs less than the mode of a .tflite file does, in order of cost."""
    mode = target.quantize.mode
    if mode in ("int8", "int16x8") and all(s.name != "equalize_ranges" for s in target.transforms):
        yield _REPAIR
    if mode == "int8":
        yield "`quantize: {mode: int16x8}`"
    if mode in ("int4", "int8"):
        yield "`quantize: weights`"
    if mode != "float16":
        yield _FLOAT16
