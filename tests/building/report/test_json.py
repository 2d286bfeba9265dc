"""The report as JSON."""

from __future__ import annotations

import json
import math

import pytest

from mobileprep.building.report.collect import report_data, report_json
from tests.building.report.reports import MEASURED, VALIDATION, check, made


def refuse(constant: str) -> None:
    pytest.fail(f"{constant} is no JSON")


def test_text_and_data_say_the_same() -> None:
    text = report_json(made())
    assert json.loads(text, parse_constant=refuse) == report_data(made())
    assert text.endswith(b"}\n")
    assert report_json(made()) == text


def test_it_tells_all_there_is() -> None:
    data = report_data(made())
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
def test_what_json_cannot_say_is_null(number: float) -> None:
    report = made(
        validation={**VALIDATION, "largest_difference": number},
        checks=[check(number)],
    )
    data = json.loads(report_json(report), parse_constant=refuse)
    assert data["accuracy"]["largest_difference"] is None
    assert data["steps"][0]["largest_difference"] is None


def test_keys_come_sorted() -> None:
    keys = [
        line.split('"')[1] for line in report_json(made()).decode().splitlines() if line[1:2] == '"'
    ]
    assert keys == sorted(keys)


def test_calibrations_are_told_with_what_no_sample_reached() -> None:
    (told,) = report_data(made(calibrations=[MEASURED]))["calibrations"]
    assert told["unseen"] == ["a", "b"]
    assert (told["origin"], told["is_measured"], told["tensors"]) == ("data/c.npz", True, 1300)
