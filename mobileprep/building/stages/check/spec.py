"""The stages `samples`, `check`, and `default_check`: parameters, inputs, outputs, and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.building.plan.engines import (
    LITERT,
    EngineRecord,
    MeasuringStage,
    RunningStage,
    engine_choice,
    engine_version,
    model_of,
)
from mobileprep.building.plan.sources import calibration_data, data_files, labels_of
from mobileprep.building.plan.spec import Files, StageSpec, Upstream, places
from mobileprep.building.stages.freeze.spec import GRAPH, Frozen
from mobileprep.recipe.model import Step, Target
from mobileprep.recipe.settings import Check, Data, InputSpec
from mobileprep.recipe.tree import plain


class SamplesRecord(Struct, frozen=True):
    """Samples that checks run, ``samples.json``.

    Args:
        origin: section that names the data, ``check`` or ``validation``, or ``drawn``.
        data: the file, or None for randomly drawn samples.
        samples: number of samples.
        inputs: description of the values of each input.
        warnings: reasons why checks may be unreliable.
    """

    origin: str
    data: str | None
    samples: int
    inputs: Mapping[str, str]
    warnings: tuple[str, ...]


class SamplesStage(RunningStage, frozen=True, kw_only=True):
    """Read or draw samples for checks, and run the source on them.

    Args:
        data: the samples; None to draw them.
        reading: reading options; None to detect them from the content.
        section: section that names the data.
        labels: default name of the labels, which are not inputs.
        count: number of samples.
        inputs: the inputs.
        optional: whether to warn instead of failing without usable samples, and to run fewer
            samples of a large network.
    """

    stage_name: ClassVar[str] = "samples"
    stage_version: ClassVar[int] = 6
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
        """Inputs, expected outputs, and the record."""
        return (self.FED, self.EXPECTED, self.RECORD)


class CheckRecord(Struct, frozen=True):
    """Difference between the graph after a step and the source, ``check.json``.

    Args:
        step: the transform.
        output: output with the largest difference.
        largest_difference: largest difference of any element of any output.
        share_of_peak: difference of ``output``, as a fraction of the source's largest magnitude of
            that output.
        max_difference: the permitted maximum, or None.
        engine: engine that ran the graph.
        basis: the measured file: ``measured on digits.pb (numpy)``; empty for a step.
    """

    step: str
    output: str
    largest_difference: float
    share_of_peak: float
    max_difference: float | None
    engine: EngineRecord
    basis: str = ""


class CheckStage(MeasuringStage, frozen=True, kw_only=True):
    """Compare the graph after a step, or the packaged model, with the source.

    Args:
        step: the step; empty for the packaged model.
        earlier: records of the checks of all steps, which report a faulty step first.
        max_difference: permitted difference of an output; None for no limit.
        samples: the inputs.
        expected: the source's outputs for them.
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


class DefaultCheckRecord(Struct, frozen=True):
    """Result of the default check of a quantized target.

    Args:
        number: number of the transform that quantizes, from 1; 0 for the artifact's file.
        check: the comparison; None if it was not possible.
        warnings: large differences, changed classes, or the reason for a missing comparison.
    """

    number: int
    check: CheckRecord | None
    warnings: tuple[str, ...]


class DefaultCheckStage(RunningStage, frozen=True, kw_only=True):
    """Compare a quantized graph or file with the source. Problems are only warnings.

    Args:
        step: the transform or the artifact that quantizes.
        number: number of the transform, from 1; 0 if the artifact is quantized.
        alternatives: alternatives in recipe syntax, cheapest first.
        litert: version of LiteRT's interpreter; empty if it is not installed.
        file: the published .tflite file; None if the graph is compared.
        samples: the inputs.
        expected: the source's outputs for them.
        drawn: record of the samples.
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


def samples_spec(target: Target, check: Check, frozen: Frozen) -> StageSpec:
    """Return the stage that reads or draws the samples and runs the source on them."""
    data, section = check.data, "check"
    if data is None and target.validation is not None:
        data, section = target.validation.data, "validation"
    stage = SamplesStage(
        data=None if data is None else data_files(data),
        reading=data,
        section=section,
        labels=labels_of(target),
        count=check.samples,
        inputs=target.inputs if data is not None else _with_whole_calls(target),
        engine=engine_choice(target),
        graph=frozen.graph,
        interface=frozen.interface,
        assets=frozen.assets,
    )
    where = places(target, "check", "inputs", "outputs", "engine")
    return StageSpec("samples", stage, {**where, "data": target.place((section, "data"))})


# Drawn sequences have at least this length.
_DRAWN_STEPS: Final = 16


def _with_whole_calls(target: Target) -> tuple[InputSpec, ...]:
    """Return the inputs, with a multiple of the time steps of a call instead of open sizes."""
    if target.streaming is None:
        return target.inputs
    steps = target.streaming.steps
    length = -(-_DRAWN_STEPS // steps) * steps
    return tuple(
        spec
        if spec.shape is None
        else replace(spec, shape=tuple(length if s < 0 else s for s in spec.shape))
        for spec in target.inputs
    )


def check_spec(
    target: Target,
    check: Check,
    label: str,
    step: Step,
    graph: Upstream,
    frozen: Frozen,
    samples: str,
) -> StageSpec:
    """Return the stage that compares the graph after a step with the source."""
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
    """Return the samples of a default check: calibration data if it exists, else drawn ones."""
    spec = samples_spec(_on_interpreter(target), Check(calibration_data(target)), frozen)
    assert isinstance(spec.stage, SamplesStage)
    stage = replace(spec.stage, section="calibration", optional=True)
    return replace(spec, task="default-samples", stage=stage)


def default_check_spec(
    target: Target, frozen: Frozen, steps: Sequence[str], file: Upstream, samples: str
) -> StageSpec:
    """Return the stage that compares the quantized graph or file with the source."""
    is_file = quantizes_file(target)
    if is_file:
        number, name, place = 0, f"{target.artifact} {target.quantize.mode}", ""
        alternatives = alternatives_to_file(target)
    else:
        number = quantizing_steps(target)[-1]
        step = target.transforms[number - 1]
        name, place = step.name, step.place
        alternatives = alternatives_to_step(target, step)
    # A file is compared itself. The graph is the one it was converted from.
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
    """Return the target with this package's interpreter, which is always installed."""
    return replace(target, engine="numpy")


def package_check_spec(
    target: Target,
    graph: Upstream,
    shipped: Upstream,
    frozen: Frozen,
    samples: Sequence[str],
    earlier: Sequence[str],
) -> StageSpec | None:
    """Return the stage that compares the packaged model with the source, if there is a check."""
    check = target.check
    if check is None:
        return None
    stage = CheckStage(
        earlier=tuple(Upstream(task, CheckStage.RECORD) for task in earlier),
        max_difference=check.max_difference,
        interface=frozen.interface,
        assets=frozen.assets,
        samples=Upstream(samples[0], SamplesStage.FED),
        expected=Upstream(samples[0], SamplesStage.EXPECTED),
        **model_of(target, check, graph, shipped),
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
"""Transforms that store or compute numbers in fewer bits."""


_CHANNEL: Final = "`quantize: {mode: weights, granularity: channel}`"


_REPAIR: Final = "`repair: [equalize_ranges]` in `quantize`"


_FLOAT16: Final = "`quantize: float16`"


def needs_default_check(target: Target) -> bool:
    """Return whether a target quantizes but its recipe has no check and no validation.

    ``check: false`` turns the default check off.
    """
    if target.check is not None or target.validation is not None:
        return False
    said = None if target.tree is None else target.tree.get("check")
    is_off = said is not None and plain(said) is False
    return not is_off and (quantizes_file(target) or bool(quantizing_steps(target)))


def quantizes_file(target: Target) -> bool:
    """Return whether the artifact itself is quantized, rather than its graph."""
    return target.artifact == "tflite" and target.quantize.mode != "none"


def quantizing_steps(target: Target) -> list[int]:
    """Return the numbers of the steps that quantize, from 1."""
    chain = enumerate(target.transforms, start=1)
    return [number for number, step in chain if step.name in QUANTIZERS]


def alternatives_to_step(target: Target, step: Step) -> Iterator[str]:
    """Yield alternatives to a transform that change outputs less, in order of cost."""
    has_scales = any(s.name == "equalize_ranges" for s in target.transforms)
    if step.name == "quantize_nodes":
        yield from () if has_scales else (_REPAIR,)
        yield _CHANNEL
    elif step.name == "linear_quantize_weights" and step.options.get("bits", 8) != 8:
        yield "`bits: 8`"
    if step.name in ("quantize_weights", "linear_quantize_weights"):
        by_channel = step.options.get("granularity", "channel") == "channel"
        if step.name == "quantize_weights" or not by_channel:
            yield _CHANNEL
        yield from () if has_scales else ("`then: [equalize_ranges]`",)
    if step.name != "cast_weights":
        yield _FLOAT16


def alternatives_to_file(target: Target) -> Iterator[str]:
    """Yield alternatives to a .tflite file's mode that change outputs less, in order of cost."""
    mode = target.quantize.mode
    if mode in ("int8", "int16x8") and all(s.name != "equalize_ranges" for s in target.transforms):
        yield _REPAIR
    if mode == "int8":
        yield "`quantize: {mode: int16x8}`"
    if mode == "int4" and target.quantize.block_size is None:
        yield "`quantize: {mode: int4, block_size: 32}`"
    if mode in ("int4", "int8"):
        yield "`quantize: weights`"
    if mode != "float16":
        yield _FLOAT16
