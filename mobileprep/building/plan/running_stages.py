"""The kinds of stages that run a graph or compare outputs; see `building/plan/stages.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct, field

from mobileprep.building.plan.spec import Files, Stage, Upstream
from mobileprep.core.declare import Located
from mobileprep.recipe.settings import Data, InputSpec
from mobileprep.recipe.validation_settings import Calibration


class EngineChoice(Struct, frozen=True):
    """What may run a stage's graphs.

    Args:
        name: as the recipe has it.
        versions: of every engine that ``auto`` may choose, or of the one that is named.
        regular_expressions: what the interpreter runs them by, with its version.
    """

    name: str
    versions: Mapping[str, str]
    regular_expressions: str = ""


class RunningStage(Stage, frozen=True, kw_only=True):
    """What all stages have that run a graph.

    Args:
        engine: what may run it.
        graph: the graph.
        interface: what is fed and fetched.
        assets: the files that the graph reads.
    """

    engine: EngineChoice
    graph: Upstream
    interface: Upstream
    assets: Upstream


class Measured(Struct, frozen=True, kw_only=True):
    """What a stage measures, if that is a target's model and not a graph inside the build.

    Args:
        name: for reports: the packaged file, or ``BEFORE_CONVERSION``.
        variable: the environment variable with the key of an encrypted file; else empty.
        key_id: the id of that key.
    """

    name: str
    variable: str = ""
    key_id: str = ""


RunningSection: TypeAlias = Literal["check", "validation"]
"""The sections of a recipe that run a target's model."""


class MeasuringStage(RunningStage, frozen=True, kw_only=True):
    """What stages share that run a graph of the build or a target's packaged model.

    Args:
        measured: the target's model; None for other graphs. Then ``graph`` is the packaged file,
            unless ``lite`` is.
        lite: the packaged .tflite file, which runs in place of the graph it was converted from.
    """

    measured: Measured | None = None
    lite: Upstream | None = None


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

    step: str = ""
    earlier: tuple[Upstream, ...] = ()
    max_difference: float | None = None
    samples: Upstream
    expected: Upstream

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


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


class CalibrateStage(Stage, frozen=True, kw_only=True):
    """The ranges of a float graph's tensors: of a range file, or measured on samples.

    Args:
        calibration: how they are measured; where that runs is no parameter.
        data: the samples; None where they are not there and a range file is.
        labels: the name of their labels, which are not fed, where the data does not say.
        inputs: what is fed.
        range_file: the ranges that were checked in, or None.
        graph: the float graph.
        source: the model before any transform, which shows what its inputs were trained with.
        interface: what is fed and fetched.
        assets: the files that the graph reads.
        regular_expressions: what the interpreter runs them by, with its version.
        for_litert: whether the ranges are for a file that LiteRT runs.
        engine: the engine that runs the samples; None for the interpreter.
    """

    stage_name: ClassVar[str] = "calibrate"
    stage_version: ClassVar[int] = 6
    RANGES: ClassVar[str] = "ranges.yaml"
    DATA: ClassVar[str] = "data.json"
    RECORD: ClassVar[str] = "calibration.json"

    calibration: Calibration
    data: Files | None = None
    labels: str = "label"
    inputs: tuple[InputSpec, ...] = ()
    range_file: Files | None = None
    graph: Upstream
    source: Upstream
    interface: Upstream
    assets: Upstream
    regular_expressions: str = ""
    for_litert: bool = False
    engine: EngineChoice | None = None

    @property
    def output_files(self) -> tuple[str, ...]:
        """The ranges, the record, and the record of the data."""
        return (self.RANGES, self.RECORD, self.DATA)


class DamageStage(Stage, frozen=True, kw_only=True):
    """Compares the tensors of a float graph with those of what quantizing made of it.

    Args:
        data: the samples.
        reading: how they are read; None where their content tells.
        labels: the name of their labels, which are not fed, where ``reading`` does not say.
        count: how many samples, or all of fewer.
        inputs: what is fed.
        graph: the float graph.
        quantized: the other.
        interface: what is fed and fetched.
        assets: the files that the graphs read.
        regular_expressions: what the interpreter runs them by, with its version.
    """

    stage_name: ClassVar[str] = "damage"
    stage_version: ClassVar[int] = 3
    RECORD: ClassVar[str] = "damage.json"

    data: Files
    reading: Data | None = None
    labels: str = "label"
    count: int
    inputs: tuple[InputSpec, ...] = ()
    graph: Upstream
    quantized: Upstream
    interface: Upstream
    assets: Upstream
    regular_expressions: str = ""

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)


class MeasuredMetric(Located, frozen=True, kw_only=True):
    """What is measured of a graph.

    Args:
        metric: its name; of a Python function, the function's.
        python: the slot of the function's file; empty for a metric of this package.
        outputs: the tensors that it is of; empty for the first, or for every one.
        labels: the name of the array of labels; None for what compares with the source.
        labels_needed: whether it is an error where the data has none.
        peak, threshold, ignore, characters: see ``recipe.validation_settings.MetricChoice``.
        place: where the recipe asks for it, for messages.
    """

    metric: str
    python: str = ""
    outputs: tuple[str, ...] = ()
    labels: str | None = "label"
    labels_needed: bool = True
    peak: float | None = None
    threshold: float | None = None
    ignore: int | None = None
    characters: tuple[str, ...] = ()
    place: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"place"})


class JudgedMetric(Located, frozen=True, kw_only=True):
    """What is allowed of a metric; see ``records.MetricRecord``.

    Args:
        place: where the first limit stands, for messages.
    """

    higher_is_better: bool = True
    max_drop: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    place: str = ""
    aside: ClassVar[frozenset[str]] = frozenset({"place"})


class EvaluateStage(MeasuringStage, frozen=True, kw_only=True):
    """Runs a graph on data, measures it, and keeps its outputs.

    Args:
        data: the data.
        reading: how it is read; None where its content tells.
        metrics: what is measured.
        functions: the Python files of metrics, by slot.
        samples: how many are run; None for all.
        seed: draws them; None for those that are spread evenly.
        batch: how many are run at once.
        strict: whether one that cannot be read is an error.
        inputs: what is fed.
        looks_at_data: whether to warn of the data itself; of a target's model, the evaluation of
            its source has done so.
    """

    stage_name: ClassVar[str] = "evaluate"
    stage_version: ClassVar[int] = 9
    OUTPUTS: ClassVar[str] = "outputs.npz"
    RECORD: ClassVar[str] = "evaluation.json"
    DATA: ClassVar[str] = "data.json"

    data: Files
    reading: Data | None = None
    metrics: tuple[MeasuredMetric, ...]
    functions: Mapping[str, Files] = field(default_factory=dict)
    samples: int | None = None
    seed: int | None = None
    batch: int = 64
    strict: bool = False
    inputs: tuple[InputSpec, ...] = ()
    looks_at_data: bool = False

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record, what the graph gives for each sample, and the record of the data."""
        return (self.RECORD, self.OUTPUTS, self.DATA)


class ValidateStage(Stage, frozen=True, kw_only=True):
    """Compares an artifact's outputs and metrics with the source's.

    Args:
        metrics: what is allowed of each metric, in the order of the evaluations.
        before: the record of the source's evaluation.
        after: the record of the artifact's.
        before_outputs: what the source gave.
        after_outputs: what the artifact gave.
        data: the record of the validation's data; None without a look at it.
        calibrations: the records of the data that the target was calibrated on.
    """

    stage_name: ClassVar[str] = "validate"
    stage_version: ClassVar[int] = 6
    RECORD: ClassVar[str] = "validation.json"

    metrics: tuple[JudgedMetric, ...]
    before: Upstream
    after: Upstream
    before_outputs: Upstream
    after_outputs: Upstream
    data: Upstream | None = None
    calibrations: tuple[Upstream, ...] = ()

    @property
    def output_files(self) -> tuple[str, ...]:
        """The record alone."""
        return (self.RECORD,)
