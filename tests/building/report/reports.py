"""Records of stages, and the report of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import convert

from mobileprep.building.plan.spec import Records
from mobileprep.building.report.collect import Report, collect_report
from mobileprep.building.stages.calibrate.spec import CalibrationRecord
from mobileprep.building.stages.check.spec import CheckRecord, SamplesRecord
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.package.spec import CompressRecord, PackageRecord
from mobileprep.building.stages.transform.spec import TransformRecord
from mobileprep.building.stages.validate.spec import ValidationRecord

FREEZE: dict[str, Any] = {
    "nodes": 72,
    "parameters": 10349,
    "constants": 20,
    "bytes": 49261,
    "ops": {"Const": 20},
    "variables": 14,
    "warnings": [],
    "init_ops": [],
    "assets": {},
}
MODEL: dict[str, Any] = {
    "file": "digits.pb",
    "bytes": 15723,
    "nodes": 35,
    "parameters": 9968,
    "constants": 11,
}
COMPRESSED: dict[str, Any] = {"bytes": 12831, "compressor": "deflate by X 1"}
NUMPY: dict[str, Any] = {
    "name": "numpy",
    "version": "",
    "samples": 0,
    "within": None,
    "tolerance": 1e-4,
    "unlike": "",
}
OPENVINO: dict[str, Any] = {
    **NUMPY,
    "name": "openvino",
    "version": "2026.4.1",
    "samples": 4,
    "within": 1e-6,
}
VALIDATION: dict[str, Any] = {
    "samples": 450,
    "metrics": [
        {
            "metric": "top1",
            "output": "probabilities",
            "before": 447 / 450,
            "after": 446 / 450,
            "drop": 1 / 450,
            "higher_is_better": True,
            "max_drop": 0.01,
            "at_least": None,
            "at_most": None,
        }
    ],
    "outputs": [{"output": "probabilities", "largest_difference": 0.0082, "share_of_peak": 0.0083}],
    "largest_difference": 0.0082,
    "warnings": [],
    "engines": {"source": NUMPY, "model": NUMPY},
}


SAMPLES: dict[str, Any] = {
    "origin": "drawn",
    "data": None,
    "samples": 8,
    "inputs": {"image": "float32 [1, 8, 8, 1], 0 to 1 (the graph does not show the range)"},
    "warnings": [],
}


MEASURED = CalibrationRecord(
    *("data/c.npz", True, "percentile 99.99", 200, 1300),
    unseen=("a", "b"),
    warnings=("no sample reached 2 tensors",),
)


def check(difference: float, *, step: str = "a_step", engine: dict[str, Any] = NUMPY) -> Any:
    """The record of a checked step with an output whose peak is 2."""
    return {
        "step": step,
        "output": "probabilities",
        "largest_difference": difference,
        "share_of_peak": difference / 2,
        "max_difference": None,
        "engine": engine,
    }


def step(name: str, **changes: Any) -> dict[str, Any]:
    """The record of a step with the given changes."""
    record = {
        "name": name,
        "nodes": 72,
        "nodes_before": 72,
        "nodes_after": 72,
        "parameters": 10349,
        "constants": 20,
        "bytes": 49261,
        "ops": {},
        "matched": 0,
        "added": 0,
        "removed": 0,
        "changed": 0,
        "skipped": {},
        "warnings": [],
    }
    return {**record, **changes}


STEPS = [
    step("strip_unused_nodes"),
    step(
        "quantize_weights",
        nodes=1234,
        bytes=15723,
        matched=2,
        added=6,
        changed=2,
        skipped={"fewer elements than minimum_size": 8},
        warnings=["quantize_weights: see [/docs] for [1, 2]"],
    ),
]


def make_report(
    *,
    steps: list[dict[str, Any]] = STEPS,
    checks: list[dict[str, Any]] = (),  # type: ignore[assignment]
    freeze: dict[str, Any] = FREEZE,
    validation: dict[str, Any] | None = VALIDATION,
    samples: dict[str, Any] | None = None,
    warnings: Sequence[str] = (),
    calibrations: Sequence[CalibrationRecord] = (),
) -> Report:
    """A report of the target phone of the digits recipe."""
    package = {"model": MODEL, "ops": {"Conv2D": 2, "Const": 15}, "warnings": list(warnings)}
    records = [
        convert(freeze, FreezeRecord),
        convert(package, PackageRecord),
        convert(COMPRESSED, CompressRecord),
        *(convert(one, TransformRecord) for one in steps),
        *(convert(one, CheckRecord) for one in checks),
        *(() if samples is None else (convert(samples, SamplesRecord),)),
        *(() if validation is None else (convert(validation, ValidationRecord),)),
        *calibrations,
    ]
    files = {"ops_to_register.h": 900, "digits.pb": 15723}
    return collect_report("digits", "phone", Records(records), files)
