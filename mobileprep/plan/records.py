"""The records that stages leave as JSON: written by one stage, read by others and by the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Interface:
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


@dataclass(frozen=True)
class FreezeRecord:
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


@dataclass(frozen=True)
class TransformRecord:
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


@dataclass(frozen=True)
class ModelFacts:
    """The model that ships: its file, and what it amounts to."""

    file: str
    nodes: int
    parameters: int
    constants: int
    bytes: int


@dataclass(frozen=True)
class PackageRecord:
    """What ships, ``package.json``.

    Args:
        model: the model file.
        ops: how many nodes of each op it has.
        warnings: what the user should know of it.
    """

    model: ModelFacts
    ops: Mapping[str, int]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class CompressRecord:
    """The model file as app packages store it, ``compress.json``.

    Args:
        bytes: the length of the compressed file.
        compressor: what the figure is for.
    """

    bytes: int
    compressor: str


@dataclass(frozen=True)
class BudgetRecord:
    """What of a budget is left, ``budget.json``; None for sizes without a limit.

    Args:
        model_bytes: bytes that the model file stays below its limit.
        compressed_bytes: the same of the compressed file.
    """

    model_bytes: int | None
    compressed_bytes: int | None


@dataclass(frozen=True)
class SamplesRecord:
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


@dataclass(frozen=True)
class CalibrationRecord:
    """Where ranges come from, ``calibration.json``.

    Args:
        origin: the range file or the data, as the recipe names it.
        is_measured: whether the stage has measured them itself.
        method: how they were found.
        samples: on how many samples.
        tensors: how many have a range.
        unseen: those that no sample reached, as in branches that were never taken.
        warnings: what makes the ranges worth less than they seem.
    """

    origin: str
    is_measured: bool
    method: str
    samples: int
    tensors: int
    unseen: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineRecord:
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


@dataclass(frozen=True)
class CheckRecord:
    """How far the graph after a step is from the source, ``check.json``.

    Args:
        step: the transform.
        output: the output that is furthest off.
        largest_difference: of any element of any output.
        share_of_peak: how far ``output`` is off, as a share of the largest magnitude that the
            source gives for it.
        max_difference: what is allowed, or None.
        engine: what ran the graph.
    """

    step: str
    output: str
    largest_difference: float
    share_of_peak: float
    max_difference: float | None
    engine: EngineRecord


@dataclass(frozen=True)
class MetricValue:
    """What a graph comes to by one metric.

    Args:
        metric: its name, ``auto`` resolved.
        outputs: the tensors that it is of; empty for each.
        value: None for what compares a model with the source.
    """

    metric: str
    outputs: tuple[str, ...]
    value: float | None


@dataclass(frozen=True)
class EvaluationRecord:
    """How a graph does on data, ``evaluation.json``.

    Args:
        outputs: the tensors that were fetched.
        samples: how many.
        metrics: in the order in which they are asked for.
        warnings: what makes them worth less than they seem.
        engine: what ran the graph.
    """

    outputs: tuple[str, ...]
    samples: int
    metrics: tuple[MetricValue, ...]
    warnings: tuple[str, ...]
    engine: EngineRecord


@dataclass(frozen=True)
class ValidationEngines:
    """What ran the source, and what ran the model that ships."""

    source: EngineRecord
    model: EngineRecord


@dataclass(frozen=True)
class MetricRecord:
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


@dataclass(frozen=True)
class OutputRecord:
    """How far an output of the model that ships is from the source's.

    Args:
        output: the tensor.
        largest_difference: of any element; None where it has another shape.
        share_of_peak: the same as a share of the largest magnitude that the source gives.
    """

    output: str
    largest_difference: float | None
    share_of_peak: float | None


@dataclass(frozen=True)
class ValidationRecord:
    """How the model that ships compares with the source, ``validation.json``.

    Args:
        samples: how many.
        metrics: those that were asked for.
        outputs: every output.
        largest_difference: of any element of any output.
        warnings: what makes the comparison worth less than it seems.
        engines: what ran the two.
    """

    samples: int
    metrics: tuple[MetricRecord, ...]
    outputs: tuple[OutputRecord, ...]
    largest_difference: float
    warnings: tuple[str, ...]
    engines: ValidationEngines


@dataclass(frozen=True)
class TargetRecords:
    """All records of one target that the report is made of.

    Args:
        freeze: of the source.
        package: of what ships.
        compressed: of its compressed size.
        steps: of the transforms, in order.
        checks: how far the graph after each is from the source; empty where that was not asked.
        samples: what the checks feed.
        validation: how the model compares with the source, where that was asked.
        calibrations: where the ranges of its steps come from.
    """

    freeze: FreezeRecord
    package: PackageRecord
    compressed: CompressRecord
    steps: tuple[TransformRecord, ...] = ()
    checks: tuple[CheckRecord, ...] = ()
    samples: SamplesRecord | None = None
    validation: ValidationRecord | None = None
    calibrations: tuple[CalibrationRecord, ...] = ()
