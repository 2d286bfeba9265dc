"""Turns the records that stages left into one report for each target."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import Struct, field, structs

from mobileprep.building.plan.records import (
    BEFORE_CONVERSION,
    BudgetLine,
    CalibrationRecord,
    CheckRecord,
    CompressRecord,
    DamageRecord,
    EngineRecord,
    FreezeRecord,
    KernelsRecord,
    MetricRecord,
    MigrationRecord,
    ModelFacts,
    OutputRecord,
    TargetRecords,
    TransformRecord,
    ValidationRecord,
)
from mobileprep.building.report.comparison.model import Comparison
from mobileprep.targets.targets import DeviceCost


class StepLine(Struct, frozen=True):
    """What one transform did, and the graph after it: counts, parameters, bytes."""

    name: str
    nodes: int
    parameters: int
    bytes: int
    matched: int
    added: int
    removed: int
    changed: int
    skipped: Mapping[str, int]
    warnings: tuple[str, ...]
    largest_difference: float | None = None
    """Of any output element on the samples, against the source; None where not checked."""
    share_of_peak: float | None = None
    """The difference of the output that is furthest off, as a share of the largest magnitude that
    the source gives for it; None where not checked."""


class Checked(Struct, frozen=True):
    """What each transform's graph was compared with the source on.

    Args:
        origin: ``check`` or ``validation``, the section that names the data, or ``drawn``.
        data: the file, or None for samples that were drawn.
        samples: how many.
        inputs: what was fed, in words, by input.
        step: the transform after which the outputs are furthest from the source's.
        output: the output that is.
        share_of_peak: how far, as a share of the largest magnitude that the source gives for it.
        max_difference: what is allowed, or None.
        warnings: what makes the comparison worth less than it seems.
        basis: what the transforms' graphs are, if the packaged file is made from them by another
            format: ``measured on the graph before conversion``.
        model: how far the packaged model is from the source, and what was measured.
    """

    origin: str
    data: str | None
    samples: int
    inputs: Mapping[str, str]
    step: str
    output: str
    share_of_peak: float
    max_difference: float | None
    warnings: tuple[str, ...]
    basis: str = ""
    model: CheckRecord | None = None


class Accuracy(Struct, frozen=True):
    """How the artifact compares with the source graph.

    Args:
        samples: how many.
        metrics: each before and after, with its limits.
        outputs: how far each output is from the source's.
        largest_difference: of any element of any output.
        warnings: what makes the comparison worth less than it seems.
        basis: what the artifact's numbers were measured on: ``measured on digits.pb (numpy)``.
    """

    samples: int
    metrics: tuple[MetricRecord, ...]
    outputs: tuple[OutputRecord, ...]
    largest_difference: float
    warnings: tuple[str, ...] = ()
    basis: str = ""

    @property
    def is_of_graph(self) -> bool:
        """Whether the numbers are not those of the packaged file."""
        return BEFORE_CONVERSION in self.basis


class EngineLine(Struct, frozen=True):
    """What ran a graph, and whether it agrees with the interpreter.

    Args:
        graph: ``source``, ``model``, or ``after`` a transform.
        name: the engine's.
        version: its version; empty for the interpreter.
        samples: how many both ran; 0 where they were not compared.
        within: what the difference stays below, as a share of the largest value of its tensor;
            None where they were not compared.
        tolerance: what it may be.
        unlike: why they were not compared, where another engine than the interpreter ran.
    """

    graph: str
    name: str
    version: str
    samples: int
    within: float | None
    tolerance: float
    unlike: str


class Report(Struct, frozen=True):
    """All that is told of one target.

    Args:
        recipe: the recipe's name.
        target: the target's name.
        source: the frozen source: nodes, parameters, bytes, and notes of the freezing.
        steps: the transforms in order.
        model: the model file: name, bytes, nodes, parameters.
        compressed: the model file's length compressed, and what compressed it.
        ops: how many nodes of each op are left.
        files: the bytes of each file of the folder, by name.
        check: how far the transforms' graphs are from the source, where the recipe checks.
        accuracy: before and after, where the recipe validates.
        engines: what ran each graph; nothing where none was run.
        warnings: what the user should know of the model that ships.
        quantize: how the target quantizes, as ``weights`` or ``nodes, observed``; empty where not.
        damage: what that did to tensors, where it was looked at.
        calibrations: where the ranges of its eight-bit nodes come from.
        budget: what the target allows, and the model takes of it.
        cost: operations and latency of one sample on the target's device, if it names one.
        kernels: what the header for each release registers.
        tool: the program that built it and its version, ``mobileprep 1.2``.
        settings: what the recipe says of the target, as its manifest has it.
        sources: the sha256 of each file that it was made from, by its name in the recipe.
        migration: which runtimes run its graph, where the recipe asks.
    """

    recipe: str
    target: str
    source: FreezeRecord
    steps: tuple[StepLine, ...]
    model: ModelFacts
    compressed: CompressRecord
    ops: Mapping[str, int]
    files: Mapping[str, int]
    check: Checked | None
    accuracy: Accuracy | None
    engines: tuple[EngineLine, ...]
    warnings: tuple[str, ...] = ()
    quantize: str = ""
    damage: DamageRecord | None = None
    calibrations: tuple[CalibrationRecord, ...] = ()
    budget: tuple[BudgetLine, ...] = ()
    cost: DeviceCost | None = None
    kernels: tuple[KernelsRecord, ...] = ()
    tool: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    migration: MigrationRecord | None = None


def collect_report(
    recipe: str,
    target: str,
    records: TargetRecords,
    files: Mapping[str, int],
    quantize: str = "",
) -> Report:
    """The report of a target.

    Args:
        files: the bytes of each published file, by name.
    """
    package, validation, default = records.package, records.validation, records.default_check
    checks, model = records.checks, records.package_check
    of_steps: tuple[CheckRecord | None, ...] = checks
    if default is not None and default.check is not None and default.number:
        checks = (default.check,)
        of_steps = (*(None,) * (default.number - 1), default.check)
    elif default is not None:
        model = default.check
    return Report(
        recipe,
        target,
        records.freeze,
        tuple(_step(s, c) for s, c in zip_longest(records.steps, of_steps)),
        package.model,
        records.compressed,
        package.ops,
        dict(sorted(files.items())),
        _checked(records, checks, model),
        None if validation is None else _accuracy(validation),
        tuple(_engines(checks, model, validation)),
        (*package.warnings, *(() if default is None else default.warnings)),
        quantize,
        records.damage,
        records.calibrations,
        () if records.budget is None else records.budget.lines,
        None if records.budget is None else records.budget.cost,
        package.kernels,
        migration=records.migration,
    )


def _checked(
    records: TargetRecords, checks: Sequence[CheckRecord], model: CheckRecord | None
) -> Checked | None:
    """The checks of steps and of the packaged model; None without any."""
    samples, is_converted = records.samples, bool(records.package.model.basis)
    if samples is None or not (checks or model):
        return None
    # Of equal differences the first step's: it is where they come from.
    furthest = max(checks, key=lambda check: check.share_of_peak, default=model)
    assert furthest is not None
    return Checked(
        samples.origin,
        samples.data,
        samples.samples,
        samples.inputs,
        furthest.step if checks else "",
        furthest.output,
        furthest.share_of_peak,
        furthest.max_difference,
        samples.warnings,
        f"measured on {BEFORE_CONVERSION}" if is_converted else "",
        model,
    )


def _accuracy(record: ValidationRecord) -> Accuracy:
    return Accuracy(**{name: getattr(record, name) for name in Accuracy.__struct_fields__})


def _engines(
    checks: Sequence[CheckRecord], model: CheckRecord | None, validation: ValidationRecord | None
) -> Iterator[EngineLine]:
    for check in checks:
        yield _engine(f"after {check.step}", check.engine)
    if validation is None:
        if model is not None:
            yield _engine("model", model.engine)
    else:
        yield _engine("source", validation.engines.source)
        yield _engine("model", validation.engines.model)


def _engine(graph: str, record: EngineRecord) -> EngineLine:
    return EngineLine(graph, **structs.asdict(record))


def _step(record: TransformRecord, check: CheckRecord | None) -> StepLine:
    return StepLine(
        record.name,
        record.nodes,
        record.parameters,
        record.bytes,
        record.matched,
        record.added,
        record.removed,
        record.changed,
        record.skipped,
        record.warnings,
        None if check is None else check.largest_difference,
        None if check is None else check.share_of_peak,
    )


def report_data(report: Report) -> dict[str, Any]:
    """The report as JSON-able data; JSON has no infinity and no NaN, so those are null."""
    data: dict[str, Any] = finite(report)
    return data


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON-able data; numbers that are not finite are null."""
    data: dict[str, Any] = finite(comparison)
    return data


def report_json(report: Report) -> bytes:
    """The report as JSON text, keys sorted."""
    text = json.dumps(report_data(report), sort_keys=True, indent=1, allow_nan=False)
    return f"{text}\n".encode()


def report_key(report: Report) -> bytes:
    """What is the same where ``report_json`` is, in a fifth of its time: for digests."""
    text = json.dumps(report_data(report), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode()


def finite(value: Any) -> Any:  # noqa: ANN401 - a record, or JSON-able data
    """Records and data as JSON has them, null for numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, Struct):
        return {name: finite(item) for name, item in structs.asdict(value).items()}
    return value
