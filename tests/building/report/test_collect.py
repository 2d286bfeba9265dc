"""From records to a report."""

from __future__ import annotations

import json

from msgspec import convert

from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.package.spec import ModelFacts
from mobileprep.building.stages.transform.report import StepLine
from mobileprep.building.stages.validate.spec import Accuracy, MetricRecord, OutputRecord
from tests.building.report.reports import (
    FREEZE,
    MODEL,
    SAMPLES,
    STEPS,
    VALIDATION,
    check,
    make_report,
)


def test_report_contains_every_record() -> None:
    report = make_report()
    assert (report.recipe, report.target) == ("digits", "phone")
    assert report.source == convert(FREEZE, FreezeRecord)
    assert report.model == ModelFacts(**MODEL)
    assert report.ops == {"Conv2D": 2, "Const": 15}
    accuracy = {key: value for key, value in VALIDATION.items() if key != "engines"}
    metrics = tuple(MetricRecord(**metric) for metric in accuracy["metrics"])
    outputs = tuple(OutputRecord(**output) for output in accuracy["outputs"])
    fields = {**accuracy, "metrics": metrics, "outputs": outputs, "warnings": ()}
    assert report.accuracy == Accuracy(**fields)
    assert [(line.graph, line.name) for line in report.engines] == [
        ("source", "numpy"),
        ("model", "numpy"),
    ]
    assert report.steps[1] == StepLine(
        name="quantize_weights",
        nodes=1234,
        parameters=10349,
        bytes=15723,
        matched=2,
        added=6,
        removed=0,
        changed=2,
        skipped={"fewer elements than minimum_size": 8},
        warnings=("quantize_weights: see [/docs] for [1, 2]",),
        largest_difference=None,
    )


def test_files_are_sorted() -> None:
    assert list(make_report().files) == ["digits.pb", "ops_to_register.h"]


def test_no_accuracy_without_validation() -> None:
    assert make_report(validation=None).accuracy is None
    assert make_report(validation=None).engines == ()


def test_checks_are_assigned_to_their_steps() -> None:
    checks = [check(i / 4, step=s["name"]) for i, s in enumerate(STEPS)]
    report = make_report(checks=checks)
    assert [s.largest_difference for s in report.steps] == [0.0, 0.25]
    assert [s.share_of_peak for s in report.steps] == [0.0, 0.125]
    assert report.engines[1].graph == "after quantize_weights"


def test_check_names_the_first_of_the_worst_steps() -> None:
    shares = (0.0, 0.5, 0.5, 0.25)
    checks = [check(share, step=f"s{i}") for i, share in enumerate(shares)]
    worst = make_report(steps=[STEPS[0]] * 4, checks=checks, samples=SAMPLES).check
    assert worst is not None
    assert (worst.step, worst.output, worst.share_of_peak) == ("s1", "probabilities", 0.25)
    assert (worst.origin, worst.data, worst.samples) == ("drawn", None, 8)
    assert make_report().check is None


def test_report_does_not_change_through_json() -> None:
    again = json.loads(json.dumps([STEPS, FREEZE, VALIDATION]))
    assert make_report(steps=again[0], freeze=again[1], validation=again[2]) == make_report()
