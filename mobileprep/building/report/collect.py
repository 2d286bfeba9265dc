"""Collect the records of the stages into one report per target."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, ClassVar

from msgspec import Struct, field, structs

from mobileprep.building.plan.spec import Records
from mobileprep.building.report.comparison.model import Comparison
from mobileprep.building.stages.budget.spec import BudgetLine, BudgetRecord, MeasuredCost
from mobileprep.building.stages.calibrate.spec import CalibrationRecord
from mobileprep.building.stages.candidate.spec import Candidate
from mobileprep.building.stages.check.report import Checked, checked
from mobileprep.building.stages.check.spec import CheckRecord, DefaultCheckRecord, SamplesRecord
from mobileprep.building.stages.cut.spec import PreprocessingRecord
from mobileprep.building.stages.damage.spec import DamageRecord
from mobileprep.building.stages.decoder.spec import DecodingRecord
from mobileprep.building.stages.download.spec import DownloadRecord
from mobileprep.building.stages.evaluate.spec import EngineLine, engine_line
from mobileprep.building.stages.exceptions.spec import ExceptionsRecord
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.gaps.spec import DataSets
from mobileprep.building.stages.layers.spec import LayersRecord
from mobileprep.building.stages.migration.spec import MigrationRecord
from mobileprep.building.stages.package.spec import (
    CompressRecord,
    KernelsRecord,
    LiteInterface,
    ModelFacts,
    PackageRecord,
)
from mobileprep.building.stages.pipeline.spec import PipelineRecord
from mobileprep.building.stages.transform.report import StepLine, step_line
from mobileprep.building.stages.transform.spec import TransformRecord
from mobileprep.building.stages.validate.report import accuracy_of
from mobileprep.building.stages.validate.spec import Accuracy, ValidationRecord
from mobileprep.targets.targets import DeviceCost, Memory


class Report(Struct, frozen=True):
    """Report of one target.

    Args:
        recipe: recipe name.
        target: target name.
        source: the frozen source: nodes, parameters, bytes, and notes from freezing.
        steps: the transforms in order.
        model: the model file: name, bytes, nodes, and parameters.
        compressed: compressed size of the model file, and the compressor.
        ops: number of remaining nodes of each op.
        files: size of each published file in bytes, by name.
        check: difference between the transforms' graphs and the source, if the recipe has a check.
        accuracy: accuracy before and after, if the recipe has a validation; of several, the first.
        engines: engine that ran each graph; empty if none ran.
        warnings: warnings about the published model.
        quantize: quantization mode, such as ``weights`` or ``nodes, observed``; empty if none.
        damage: quantization error of each tensor, if measured.
        calibrations: sources of the ranges of 8-bit nodes.
        budget: limits of the target and of a pipeline that ends with it, and the usage.
        cost: operations and latency for one sample on the target's device, if it names one.
        measured: measurement of the model on a device; absent in JSON if the target names none.
        kernels: kernels that the header for each release registers.
        tool: name and version of the program that built it, ``mobileprep 1.2``.
        settings: settings of the target, as in its manifest.
        sources: SHA-256 of each source file, by its name in the recipe.
        migration: runtimes that can run the graph, if the recipe asks for them.
        download: delta from the installed model; absent in JSON if there is none.
        pipeline: cost of the pipeline that ends with this model; absent in JSON if there is none.
        preprocessing: preprocessing that the app does, if the recipe asks for it.
        decoding: decoder that the app runs; absent in JSON if the recipe does not ask for it.
        validations: accuracy on each data set of a list of validations, and the gaps between them;
            absent in JSON if there is no list.
        candidate: sizes and cost of the source model, if the recipe has several models; absent in
            JSON otherwise.
        layers: quantization errors of the layers of a .tflite file, if the recipe asks for them;
            absent in JSON otherwise.
        memory: memory while loading and running, if the budget limits it; absent in JSON otherwise.
        exceptions: operators that ``quantize: auto`` excepts from int8 in a .tflite file; absent in
            JSON otherwise.
        lite: inputs and outputs of a .tflite file; absent in JSON for other files.
        schema_version: version of this format, which increases when a key is renamed or removed.
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
    measured: MeasuredCost | None = None
    kernels: tuple[KernelsRecord, ...] = ()
    tool: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    migration: MigrationRecord | None = None
    download: DownloadRecord | None = None
    pipeline: PipelineRecord | None = None
    validations: DataSets | None = None
    candidate: Candidate | None = None
    memory: Memory | None = None
    schema_version: int = 1
    preprocessing: PreprocessingRecord | None = None
    decoding: DecodingRecord | None = None
    exceptions: ExceptionsRecord | None = None
    layers: LayersRecord | None = None
    lite: LiteInterface | None = None
    optional: ClassVar[frozenset[str]] = frozenset(
        {
            *("candidate", "download", "exceptions", "layers", "lite", "measured", "memory"),
            *("decoding", "pipeline", "preprocessing", "validations"),
        }
    )
    """Fields that are absent from JSON if they are None."""


def collect_report(
    recipe: str,
    target: str,
    records: Records,
    files: Mapping[str, int],
    quantize: str = "",
) -> Report:
    """Create the report of a target.

    Args:
        files: size of each published file in bytes, by name.
    """
    package, default = records.one(PackageRecord), records.first(DefaultCheckRecord)
    validation, budget = records.first(ValidationRecord), records.first(BudgetRecord)
    pipeline = records.first(PipelineRecord)
    checks = tuple(check for check in records.all(CheckRecord) if check.step)
    model = next((check for check in records.all(CheckRecord) if not check.step), None)
    of_steps: tuple[CheckRecord | None, ...] = checks
    if default is not None and default.check is not None and default.number:
        checks = (default.check,)
        of_steps = (*(None,) * (default.number - 1), default.check)
    elif default is not None:
        model = default.check
    return Report(
        recipe,
        target,
        records.one(FreezeRecord),
        tuple(step_line(s, c) for s, c in zip_longest(records.all(TransformRecord), of_steps)),
        package.model,
        records.one(CompressRecord),
        package.ops,
        dict(sorted(files.items())),
        checked(
            records.first(SamplesRecord), checks, model, is_converted=bool(package.model.basis)
        ),
        None if validation is None else accuracy_of(validation),
        tuple(_engines(checks, model, validation)),
        (*package.warnings, *(() if default is None else default.warnings)),
        quantize,
        records.first(DamageRecord),
        records.all(CalibrationRecord),
        (
            *(() if budget is None else budget.lines),
            *(() if pipeline is None else pipeline.budget),
        ),
        None if budget is None else budget.cost,
        None if budget is None else budget.measured,
        package.kernels,
        migration=records.first(MigrationRecord),
        download=records.first(DownloadRecord),
        pipeline=pipeline,
        preprocessing=records.first(PreprocessingRecord),
        decoding=records.first(DecodingRecord),
        layers=records.first(LayersRecord),
        validations=records.first(DataSets),
        candidate=records.first(Candidate),
        memory=None if budget is None else budget.memory,
        exceptions=records.first(ExceptionsRecord),
        lite=package.lite,
    )


def all_warnings(report: Report) -> Iterator[str]:
    """Yield all warnings of a report."""
    yield from report.source.warnings
    yield from (warning for step in report.steps for warning in step.warnings)
    yield from report.warnings
    if report.check is not None:
        yield from report.check.warnings
    yield from (warning for record in report.calibrations for warning in record.warnings)
    for name, accuracy in accuracies(report):
        yield from (f"{name}: {text}" if name else text for text in accuracy.warnings)


def accuracies(report: Report) -> Iterator[tuple[str, Accuracy]]:
    """Yield the accuracy on each data set with its name, or the only one with an empty name."""
    if report.validations is not None:
        yield from ((one.name, one) for one in report.validations.data_sets)
    elif report.accuracy is not None:
        yield "", report.accuracy


def _engines(
    checks: Sequence[CheckRecord], model: CheckRecord | None, validation: ValidationRecord | None
) -> Iterator[EngineLine]:
    for check in checks:
        yield engine_line(f"after {check.step}", check.engine)
    if validation is None:
        if model is not None:
            yield engine_line("model", model.engine)
    else:
        yield engine_line("source", validation.engines.source)
        yield engine_line("model", validation.engines.model)


def report_data(report: Report) -> dict[str, Any]:
    """Return the report as JSON-serializable data, with null for infinity and NaN."""
    data: dict[str, Any] = finite(report)
    return {k: v for k, v in data.items() if v is not None or k not in Report.optional}


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON-serializable data, with null for infinity and NaN."""
    data: dict[str, Any] = finite(comparison)
    return data


def report_json(report: Report) -> bytes:
    """Serialize the report as JSON with sorted keys."""
    text = json.dumps(report_data(report), sort_keys=True, indent=1, allow_nan=False)
    return f"{text}\n".encode()


def finite(value: Any) -> Any:  # noqa: ANN401 - a record, or JSON-serializable data
    """Convert records to JSON-serializable data, with null for infinity and NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    if isinstance(value, Struct):
        return {name: finite(item) for name, item in structs.asdict(value).items()}
    return value
