"""Turns the records that stages left into one report for each target."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from msgspec import Struct, field, structs

from mobileprep.building.plan.spec import Records
from mobileprep.building.report.comparison.model import Comparison
from mobileprep.building.stages.budget.spec import BudgetLine, BudgetRecord
from mobileprep.building.stages.calibrate.spec import CalibrationRecord
from mobileprep.building.stages.check.report import Checked, checked
from mobileprep.building.stages.check.spec import CheckRecord, DefaultCheckRecord, SamplesRecord
from mobileprep.building.stages.damage.spec import DamageRecord
from mobileprep.building.stages.evaluate.report import EngineLine, engine_line
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.migration.spec import MigrationRecord
from mobileprep.building.stages.package.spec import (
    CompressRecord,
    KernelsRecord,
    ModelFacts,
    PackageRecord,
)
from mobileprep.building.stages.transform.report import StepLine, step_line
from mobileprep.building.stages.transform.spec import TransformRecord
from mobileprep.building.stages.validate.report import Accuracy, accuracy_of
from mobileprep.building.stages.validate.spec import ValidationRecord
from mobileprep.targets.targets import DeviceCost


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
    records: Records,
    files: Mapping[str, int],
    quantize: str = "",
) -> Report:
    """The report of a target.

    Args:
        files: the bytes of each published file, by name.
    """
    package, default = records.one(PackageRecord), records.first(DefaultCheckRecord)
    validation, budget = records.first(ValidationRecord), records.first(BudgetRecord)
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
        () if budget is None else budget.lines,
        None if budget is None else budget.cost,
        package.kernels,
        migration=records.first(MigrationRecord),
    )


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
