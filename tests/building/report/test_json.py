"""The report as JSON."""

from __future__ import annotations

import json
import math

import pytest

from mobileprep.building.report.collect import report_data, report_json
from tests.building.report.reports import MEASURED, VALIDATION, check, make_report


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
