"""The stages `samples`, `check`, and `default_check`: parameters, inputs, outputs, and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.building.plan.engines import (
    LITERT,
    EngineRecord,
    MeasuringStage,
    RunningStage,
    engine_choice,
    engine_version,
)
from mobileprep.building.plan.sources import data_files, labels_of
from mobileprep.building.plan.spec import Files, StageSpec, Upstream, places
from mobileprep.building.stages.freeze.spec import GRAPH, Frozen
from mobileprep.recipe.model import Step, Target
from mobileprep.recipe.settings import Check, Data, InputSpec
from mobileprep.recipe.tree import plain


class SamplesRecord(Struct, frozen=True):
    """What checks feed, ``samples.json``.

    Args:
        origin: ``check`` or ``validation``, the section that names the data, or ``drawn``.
        data: the file, or None for samples that were drawn.
        samples: how many.
        inputs: what is fed, in words, by input.
        warnings: what makes checks worth less than they seem.
    """

    origin: str
    data: str | None
    samples: int
    inputs: Mapping[str, str]
    warnings: tuple[str, ...]


class SamplesStage(RunningStage, frozen=True, kw_only=True):
    """What checks feed, and what the source gives for it.

    Args:
        data: the samples; None to draw them.
        reading: how they are read; None where their content tells.
        section: the section that names the data.
        labels: the name of its labels, which are not fed, where ``reading`` does not say.
        count: how many samples.
        inputs: what is fed.
        optional: whether to warn instead of failing where there are no usable samples.
    """

    stage_name: ClassVar[str] = "samples"
    stage_version: ClassVar[int] = 5
    FED: ClassVar[str] = "samples.npz"
    EXPECTED: ClassVar[str] = "expected.npz"
    RECORD: ClassVar[str] = "samples.json"
    reported: ClassVar[type[Struct] | None] = SamplesRecord

    data: Files | None = None
    reading: Data | None = None
    section: str
    labels: str = "label"
    count: int
    inputs: tuple[InputSpec, ...] = ()
    optional: bool = False

    @property
    def output_files(self) -> tuple[str, ...]:
        """What is fed, what the source gives for it, and the record."""
        return (self.FED, self.EXPECTED, self.RECORD)


class CheckRecord(Struct, frozen=True):
    """How far the graph after a step is from the source, ``check.json``.

    Args:
        step: the transform.
        output: the output that is furthest off.
        largest_difference: of any element of any output.
        share_of_peak: how far ``output`` is off, as a share of the largest magnitude that the
            source gives for it.
        max_difference: what is allowed, or None.
        engine: what ran the graph.
        basis: what was measured: ``measured on digits.pb (numpy)``; empty for a step.
    """

    step: str
    output: str
    largest_difference: float
    share_of_peak: float
    max_difference: float | None
    engine: EngineRecord
    basis: str = ""


class CheckStage(MeasuringStage, frozen=True, kw_only=True):
    """Compares the graph after a step, or the packaged model, with the source.

    Args:
        step: the step; empty for the packaged model.
        earlier: the records of the checks of all steps, which report a faulty step first.
        max_difference: how far an output may be off; None for no limit.
        samples: what is fed.
        expected: what the source gives for it.
    """

    stage_name: ClassVar[str] = "check"
    stage_version: ClassVar[int] = 6
    RECORD: ClassVar[str] = "check.json"
    reported: ClassVar[type[Struct] | None] = CheckRecord

    step: str = ""
    earlier: tuple[Upstream, ...] = ()
    max_difference: float | None = None
    samples: Upstream
    expected: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


class DefaultCheckRecord(Struct, frozen=True):
    """What the check of a quantized target found that has none in its recipe.

    Args:
        number: of the transform that quantizes, from 1; 0 for the file of the artifact.
        check: the comparison; None where it was not possible.
        warnings: large differences, other classes, or why there is no comparison.
    """

    number: int
    check: CheckRecord | None
    warnings: tuple[str, ...]


class DefaultCheckStage(RunningStage, frozen=True, kw_only=True):
    """Compares a quantized graph or file with the source, and warns.

    Args:
        step: the transform, or the artifact, that quantizes.
        number: of the transform in the chain, from 1; 0 where the artifact is quantized.
        alternatives: what to try instead, cheapest first, as recipes have it.
        litert: the version of LiteRT's interpreter; empty where it is not installed.
        file: the .tflite file that ships; None where the graph is compared.
        samples: what is fed.
        expected: what the source gives for it.
        drawn: the record of the samples.
    """

    stage_name: ClassVar[str] = "default_check"
    stage_version: ClassVar[int] = 2
    RECORD: ClassVar[str] = "default_check.json"
    reported: ClassVar[type[Struct] | None] = DefaultCheckRecord

    step: str
    number: int
    alternatives: tuple[str, ...] = ()
    litert: str = ""
    file: Upstream | None = None
    samples: Upstream
    expected: Upstream
    drawn: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


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
