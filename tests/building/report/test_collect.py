"""From records to a report."""

from __future__ import annotations

import json
import math

import pytest
from msgspec import convert

from mobileprep.building.report.collect import Report, report_data, report_json
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.package.spec import ModelFacts
from mobileprep.building.stages.transform.report import (
    StepLine,
    difference_text,
    rounded_text,
    step_table,
)
from mobileprep.building.stages.validate.spec import Accuracy, MetricRecord, OutputRecord
from tests.building.report.reports import (
    FREEZE,
    MEASURED,
    MODEL,
    SAMPLES,
    STEPS,
    VALIDATION,
    check,
    make_report,
    step,
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


def refuse(constant: str) -> None:
    pytest.fail(f"{constant} is not valid JSON")


def test_text_matches_the_data() -> None:
    text = report_json(make_report())
    assert json.loads(text, parse_constant=refuse) == report_data(make_report())
    assert text.endswith(b"}\n")
    assert report_json(make_report()) == text


def test_report_has_all_keys() -> None:
    data = report_data(make_report())
    assert sorted(data) == [
        "accuracy",
        "budget",
        "calibrations",
        "check",
        "compressed",
        "cost",
        "damage",
        "engines",
        "files",
        "kernels",
        "migration",
        "model",
        "ops",
        "quantize",
        "recipe",
        "schema_version",
        "settings",
        "source",
        "sources",
        "steps",
        "target",
        "tool",
        "warnings",
    ]
    assert data["accuracy"]["metrics"][0]["before"] == 447 / 450
    assert data["steps"][1]["skipped"] == {"fewer elements than minimum_size": 8}
    assert data["steps"][1]["warnings"] == ["quantize_weights: see [/docs] for [1, 2]"]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_null(number: float) -> None:
    report = make_report(
        validation={**VALIDATION, "largest_difference": number},
        checks=[check(number)],
    )
    data = json.loads(report_json(report), parse_constant=refuse)
    assert data["accuracy"]["largest_difference"] is None
    assert data["steps"][0]["largest_difference"] is None


def test_keys_are_sorted() -> None:
    keys = [
        line.split('"')[1]
        for line in report_json(make_report()).decode().splitlines()
        if line[1:2] == '"'
    ]
    assert keys == sorted(keys)


def test_calibrations_list_unseen_tensors() -> None:
    (calibration,) = report_data(make_report(calibrations=[MEASURED]))["calibrations"]
    assert calibration["unseen"] == ["a", "b"]
    assert (calibration["origin"], calibration["is_measured"], calibration["tensors"]) == (
        "data/c.npz",
        True,
        1300,
    )


INCEPTION = {
    "nodes": 1234,
    "parameters": 23_869_000,
    "bytes": 95_746_802,
    "matched": 94,
    "added": 1188,
    "removed": 1376,
    "changed": 94,
}
LONG = "freeze_requantization_ranges"


def inception(*names: str, checked: bool = False) -> Report:
    """The report of a large network."""
    checks = [check(1.5e-7) for _ in names] if checked else []
    return make_report(steps=[step(name, **INCEPTION) for name in names], checks=checks)


def table(report: Report, width: int) -> list[str]:
    return step_table(report.source, report.steps, width)


def test_full_numbers_if_they_fit() -> None:
    assert table(inception("sort"), 100) == [
        "step    nodes  parameters       bytes  matched  added  removed  changed",
        "frozen     72      10,349      49,261",
        "sort    1,234  23,869,000  95,746,802       94  1,188    1,376       94",
    ]


def test_large_numbers_are_rounded_to_fit() -> None:
    assert table(inception("fold_old_batch_norms"), 80) == [
        "step                  nodes  params  bytes  matched  added  removed  changed",
        "frozen                   72   10.3k  49.3k",
        "fold_old_batch_norms  1,234   23.9M  95.7M       94  1,188    1,376       94",
    ]


def test_numbers_are_below_the_names_to_fit() -> None:
    assert table(inception(LONG, checked=True), 80) == [
        "  nodes  parameters       bytes  matched  added  removed  changed  difference",
        "frozen",
        "     72      10,349      49,261",
        "freeze_requantization_ranges",
        "  1,234  23,869,000  95,746,802       94  1,188    1,376       94     1.5e-07",
    ]
    assert table(inception(LONG, checked=True), 70)[-1] == (
        "  1,234   23.9M  95.7M       94  1,188    1,376       94     1.5e-07"
    )


def test_columns_become_words_to_fit() -> None:
    assert table(inception(LONG, checked=True), 40) == [
        "frozen",
        "  nodes 72, params 10.3k, bytes 49.3k",
        "freeze_requantization_ranges",
        "  nodes 1,234, params 23.9M,",
        "  bytes 95.7M, matched 94, added 1,188,",
        "  removed 1,376, changed 94,",
        "  difference 1.5e-07",
    ]


@pytest.mark.parametrize("width", [1, 2, 20, 28, 40, 60, 66, 80, 100, 132])
@pytest.mark.parametrize("checked", [False, True])
def test_lines_fit_the_width_except_for_longer_words(width: int, checked: bool) -> None:
    lines = table(inception("sort", LONG, checked=checked), width)
    assert all(len(line) <= width for line in lines if " " in line.strip() and width >= 20)
    for name in ("frozen", "sort", LONG):
        assert [line for line in lines if line.startswith(name)]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.0k"),
        (99_949, "99.9k"),
        (99_950, "100k"),
        (999_499, "999k"),
        (999_500, "1.0M"),
        (1_999_999_999, "2.0G"),
        (5 * 10**15, "5000T"),
    ],
)
def test_rounded_numbers_have_two_or_three_digits(count: int, text: str) -> None:
    assert rounded_text(count) == text


def test_missing_difference_is_a_dash() -> None:
    assert (difference_text(None), difference_text(0.00821)) == ("-", "0.00821")
