"""The records that stages leave as JSON: written by one stage, read by others and by the report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from mobileprep.targets.migration.records import Migration
from mobileprep.targets.targets import DeviceCost

BEFORE_CONVERSION: Final = "the graph before conversion"
"""What a basis calls the graph that a .tflite file is converted from."""


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


class DataRecord(Struct, frozen=True):
    """The samples that a stage has run, ``data.json``.

    Args:
        name: what the recipe calls them.
        ends: the least and the greatest value of each input.
        digests: of each sample.
    """

    name: str = ""
    ends: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    digests: tuple[str, ...] = ()


class CalibrationRecord(Struct, frozen=True):
    """Where ranges come from, ``calibration.json``.

    Args:
        origin: the range file or the data, as the recipe names it.
        is_measured: whether the stage has measured them itself.
        method: how they were found.
        samples: on how many samples.
        tensors: how many have a range.
        unseen: those that no sample reached, as in branches that were never taken.
        warnings: what makes the ranges worth less than they seem.
        ranges: the lower and the upper end of each tensor's range.
    """

    origin: str
    is_measured: bool
    method: str
    samples: int
    tensors: int
    unseen: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


class TensorRecord(Struct, frozen=True):
    """What quantizing has done to a tensor.

    Args:
        tensor: its name in the float graph: ``node`` or ``node:1``.
        op: of the node that makes it.
        is_weights: whether it is a constant, and not an activation.
        is_eightbit: whether it is kept in eight bits itself, and not only made of what is.
        sqnr: signal to quantization noise in dB, from -200 to 200.
        cosine: of the angle between both, as vectors.
        clipped: the share of float values beyond the range by more than half a step; None where
            there is no range.
        rmse_over_scale: the root mean square of the errors, in steps; None where there are none.
            Rounding alone gives 0.289.
    """

    tensor: str
    op: str
    is_weights: bool
    is_eightbit: bool
    sqnr: float
    cosine: float
    clipped: float | None
    rmse_over_scale: float | None


class DamageRecord(Struct, frozen=True):
    """What quantizing has done to each tensor of a graph, ``damage.json``.

    Args:
        data: the samples' file, as the recipe names it.
        samples: how many were run.
        tensors: those that can be compared, by signal to noise, the lowest first.
        unmeasured: why nothing was measured; empty where it was.
    """

    data: str
    samples: int
    tensors: tuple[TensorRecord, ...] = ()
    unmeasured: str = ""


class EngineRecord(Struct, frozen=True):
    """What ran a graph, and how it was compared with the interpreter.

    Args:
        name: the engine's.
        tolerance: what the difference may be.
        version: its version; empty for the interpreter, which is part of this package.
        samples: how many were run by both; 0 where they were not compared.
        within: the power of ten that the difference stays below, as a share of the largest value
            of its tensor; None where they were not compared. The difference itself is rounding,
            which each processor does in its way.
        unlike: why they were not compared; empty where they were, and for the interpreter.
    """

    name: str
    tolerance: float
    version: str = ""
    samples: int = 0
    within: float | None = None
    unlike: str = ""


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


class MetricValue(Struct, frozen=True):
    """What a graph comes to by one metric.

    Args:
        metric: its name, ``auto`` resolved.
        outputs: the tensors that it is of; empty for each.
        value: None for what compares a model with the source.
        classes: how many there are to choose from; None for other metrics.
    """

    metric: str
    outputs: tuple[str, ...]
    value: float | None
    classes: int | None = None


class EvaluationRecord(Struct, frozen=True):
    """How a graph does on data, ``evaluation.json``.

    Args:
        outputs: the tensors that were fetched.
        samples: how many.
        metrics: in the order in which they are asked for.
        warnings: what makes them worth less than they seem.
        engine: what ran the graph.
        basis: what was measured: ``measured on digits.pb (numpy)``; empty for other graphs than
            a target's model.
    """

    outputs: tuple[str, ...]
    samples: int
    metrics: tuple[MetricValue, ...]
    warnings: tuple[str, ...]
    engine: EngineRecord
    basis: str = ""


class ValidationEngines(Struct, frozen=True):
    """What ran the source, and what ran the model that ships."""

    source: EngineRecord
    model: EngineRecord


class MetricRecord(Struct, frozen=True):
    """A metric of the source and of the model that ships.

    Args:
        metric: its name; of a Python function, the function's.
        output: the tensor that it is of, or several with commas.
        before: the source's; of an agreement 1.
        after: the model's.
        drop: how much worse the model is: what a metric fell by, or an error rose by.
        higher_is_better: which of the two it is.
        max_drop: what is allowed; None for no such limit.
        at_least: the least that is allowed of ``after``.
        at_most: the most.
    """

    metric: str
    output: str
    before: float
    after: float
    drop: float
    higher_is_better: bool
    max_drop: float | None
    at_least: float | None
    at_most: float | None


class OutputRecord(Struct, frozen=True):
    """How far an output of the model that ships is from the source's.

    Args:
        output: the tensor.
        largest_difference: of any element; None where it has another shape.
        share_of_peak: the same as a share of the largest magnitude that the source gives.
    """

    output: str
    largest_difference: float | None
    share_of_peak: float | None


class ValidationRecord(Struct, frozen=True):
    """How the model that ships compares with the source, ``validation.json``.

    Args:
        samples: how many.
        metrics: those that were asked for.
        outputs: every output.
        largest_difference: of any element of any output.
        warnings: what makes the comparison worth less than it seems.
        engines: what ran the two.
        basis: what the model's numbers were measured on: ``measured on digits.pb (numpy)``.
    """

    samples: int
    metrics: tuple[MetricRecord, ...]
    outputs: tuple[OutputRecord, ...]
    largest_difference: float
    warnings: tuple[str, ...]
    engines: ValidationEngines
    basis: str = ""


class Interface(Struct, frozen=True):
    """A model's interface, ``interface.json``: the tensors that the app feeds and fetches.

    Args:
        inputs: names of tensors, signatures resolved.
        outputs: the same.
        init_ops: ops that the app runs once after loading; they fill lookup tables.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    init_ops: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[str, ...]:
        """What transforms must keep: the outputs, and the ops that the app runs first."""
        return (*self.outputs, *self.init_ops)


class FreezeRecord(Struct, frozen=True):
    """What was frozen, ``freeze.json``.

    Args:
        nodes: of the graph, functions' bodies included.
        parameters: elements of all constants together.
        constants: how many Const nodes.
        bytes: the length of the serialized graph.
        ops: how many nodes of each op.
        variables: how many became constants.
        warnings: what the user should know.
        init_ops: ops that the app runs once after loading.
        assets: the files that ship with the model, by the tensor that names each.
    """

    nodes: int
    parameters: int
    constants: int
    bytes: int
    ops: Mapping[str, int]
    variables: int
    warnings: tuple[str, ...]
    init_ops: tuple[str, ...]
    assets: Mapping[str, str]


class TransformRecord(Struct, frozen=True):
    """What one step did, and the graph after it, ``step.json``.

    Args:
        name: the transform's.
        matched: how many places it acted on.
        added: how many nodes have names that none had.
        removed: how many names are gone.
        changed: how many nodes of one name differ.
        nodes_before: without functions' bodies.
        nodes_after: the same.
        skipped: how many places it left as they were, by reason.
        warnings: what the user should know.
        nodes: of the graph after it, functions' bodies included.
        parameters: elements of all constants together.
        constants: how many Const nodes.
        bytes: the length of the serialized graph.
        ops: how many nodes of each op.
    """

    name: str
    matched: int
    added: int
    removed: int
    changed: int
    nodes_before: int
    nodes_after: int
    skipped: Mapping[str, int]
    warnings: tuple[str, ...]
    nodes: int
    parameters: int
    constants: int
    bytes: int
    ops: Mapping[str, int]


class ModelFacts(Struct, frozen=True):
    """The packaged model: its file, and the counts of its nodes.

    Args:
        file: the name of the file.
        nodes: of the graph, functions' bodies included.
        parameters: elements of all constants together.
        constants: how many Const nodes.
        bytes: the length of the file.
        basis: what nodes, parameters, and ops are counted on, if that is not the file:
            ``counted on the graph before conversion``.
    """

    file: str
    nodes: int
    parameters: int
    constants: int
    bytes: int
    basis: str = ""


class KernelsRecord(Struct, frozen=True):
    """What a header registers.

    Args:
        tensorflow: the release that it is for.
        kernels: how many.
        bytes: about how much code they are; None for a release without an estimate.
    """

    tensorflow: str
    kernels: int
    bytes: int | None


class PackageRecord(Struct, frozen=True):
    """What ships, ``package.json``.

    Args:
        model: the model file.
        ops: how many nodes of each op it has.
        warnings: what the user should know of it.
        kernels: what the header for each release registers.
    """

    model: ModelFacts
    ops: Mapping[str, int]
    warnings: tuple[str, ...]
    kernels: tuple[KernelsRecord, ...] = ()


class CompressRecord(Struct, frozen=True):
    """The model file as app packages store it, ``compress.json``.

    Args:
        bytes: the length of the compressed file.
        compressor: what the figure is for.
    """

    bytes: int
    compressor: str


class BudgetLine(Struct, frozen=True):
    """A limit that is met.

    Args:
        name: the key of the recipe.
        found: what the model has or takes.
        limit: the most that is allowed.
        basis: what the number rests on, where it is an estimate; else empty.
    """

    name: str
    found: int | float
    limit: int | float
    basis: str = ""

    @property
    def left(self) -> float:
        """How much more the model might take."""
        return self.limit - self.found


class BudgetRecord(Struct, frozen=True):
    """What a budget allows and the model takes, ``budget.json``, in the order of the recipe's keys.

    Args:
        lines: one for each limit.
        cost: on the device, if the target names one and the cost is known.
    """

    lines: tuple[BudgetLine, ...]
    cost: DeviceCost | None = None


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


class TargetRecords(Struct, frozen=True):
    """All records of one target that the report is made of.

    Args:
        freeze: of the source.
        package: of what ships.
        compressed: of its compressed size.
        steps: of the transforms, in order.
        checks: how far the graph after each is from the source; empty without a check.
        samples: what the checks feed.
        validation: how the model compares with the source, where that was asked.
        calibrations: where the ranges of its steps come from.
        damage: what quantizing has done to tensors, where that was looked at.
        budget: what is left of its limits, where it has some.
        migration: which runtimes run its graph, where that was asked.
        default_check: how far a quantized target without ``checks`` is from the source.
        package_check: how far the packaged model is from the source.
    """

    freeze: FreezeRecord
    package: PackageRecord
    compressed: CompressRecord
    steps: tuple[TransformRecord, ...] = ()
    checks: tuple[CheckRecord, ...] = ()
    samples: SamplesRecord | None = None
    validation: ValidationRecord | None = None
    calibrations: tuple[CalibrationRecord, ...] = ()
    damage: DamageRecord | None = None
    budget: BudgetRecord | None = None
    migration: MigrationRecord | None = None
    default_check: DefaultCheckRecord | None = None
    package_check: CheckRecord | None = None


class RankedLayer(Struct, frozen=True):
    """What quantizing one layer alone does to the outputs.

    Args:
        layer: its name in the float graph.
        op: its op.
        sqnr: signal to noise in dB, of the output where it is lowest.
    """

    layer: str
    op: str
    sqnr: float


class RankingRecord(Struct, frozen=True):
    """The layers that may be left out of eight bits, ``ranking.json``.

    Args:
        samples: how many were run; 0 where all layers in eight bits are good enough.
        layers: the worst first; none in that case.
        fixed: how many others are quantized as the recipe's rules say.
    """

    samples: int
    layers: tuple[RankedLayer, ...]
    fixed: int


class TrialRecord(Struct, frozen=True):
    """How a graph was quantized, ``trial.json``.

    Args:
        floats: how many of the worst layers are left in float.
        weights: how many of the next worst have their weights alone in eight bits.
        is_new: whether it has not been tried before.
    """

    floats: int
    weights: int
    is_new: bool


class TryRecord(Struct, frozen=True):
    """What a try came to.

    Args:
        floats, weights: see ``TrialRecord``.
        shortfall: how far the limits are missed, in the metrics' units, the largest of them; 0
            where they hold, None where the outputs cannot be compared.
        told: a sentence for each limit that is missed.
    """

    floats: int
    weights: int
    shortfall: float | None
    told: tuple[str, ...]


class TriesRecord(Struct, frozen=True):
    """What all tries so far came to, ``tries.json``."""

    tries: tuple[TryRecord, ...]
