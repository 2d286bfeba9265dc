"""The records of stages that run graphs: samples, calibration, checks and validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from mobileprep.frozen import dataclass

BEFORE_CONVERSION: Final = "the graph before conversion"
"""What a basis calls the graph that a .tflite file is converted from."""


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
class DataRecord:
    """The samples that a stage has run, ``data.json``.

    Args:
        name: what the recipe calls them.
        ends: the least and the greatest value of each input.
        digests: of each sample.
    """

    name: str = ""
    ends: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    digests: tuple[str, ...] = ()


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


@dataclass(frozen=True)
class TensorRecord:
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


@dataclass(frozen=True)
class DamageRecord:
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
        basis: what was measured: ``measured on digits.pb (numpy)``; empty for a step.
    """

    step: str
    output: str
    largest_difference: float
    share_of_peak: float
    max_difference: float | None
    engine: EngineRecord
    basis: str = ""


@dataclass(frozen=True)
class DefaultCheckRecord:
    """What the check of a quantized target found that has none in its recipe.

    Args:
        number: of the transform that quantizes, from 1; 0 for the file of the artifact.
        check: the comparison; None where it was not possible.
        warnings: large differences, other classes, or why there is no comparison.
    """

    number: int
    check: CheckRecord | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class MetricValue:
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


@dataclass(frozen=True)
class EvaluationRecord:
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
        basis: what the model's numbers were measured on: ``measured on digits.pb (numpy)``.
    """

    samples: int
    metrics: tuple[MetricRecord, ...]
    outputs: tuple[OutputRecord, ...]
    largest_difference: float
    warnings: tuple[str, ...]
    engines: ValidationEngines
    basis: str = ""
