"""The targets of a recipe side by side."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from mobileprep.building.report.collect import Report
from mobileprep.building.report.summary import summary_text
from mobileprep.building.stages.package.spec import CompressRecord, ModelFacts
from tests.building.report.reports import VALIDATION, made


def report(target: str, quantize: str, size: int, **changes: Any) -> Report:
    model = ModelFacts("digits.pb", 1, 1, 1, size)
    compressed = CompressRecord(size // 2, "deflate by X 1")
    return structs.replace(
        made(**changes), target=target, quantize=quantize, model=model, compressed=compressed
    )


FLOAT = report("float", "", 42_600)
EIGHT = report("eight", "nodes, observed", 18_163)


def test_sizes_and_metrics_of_targets_that_quantize_otherwise() -> None:
    assert summary_text([FLOAT, EIGHT], 80).splitlines() == [
        "digits: 2 targets",
        "target  quantize          bytes  compressed  source   top-1  off by",
        "float   -                42,600      21,300  0.9933  0.9911  0.0083",
        "eight   nodes, observed  18,163       9,081  0.9933  0.9911  0.0083",
    ]


def test_a_graph_measured_in_place_of_the_file_is_named_in_each_row() -> None:
    on_file, on_graph = (
        report(name, mode, 10, validation={**VALIDATION, "basis": f"measured on {subject} (numpy)"})
        for name, mode, subject in (
            ("file", "", "digits.pb"),
            ("graph", "int8", "the graph before conversion"),
        )
    )
    lines = summary_text([on_file, on_graph], 140).splitlines()
    assert lines[1].split("  ")[-1].strip() == "measured on"
    assert lines[2].endswith("digits.pb (numpy)")
    assert lines[3].endswith("the graph before conversion (numpy)")
    assert "measured on" not in summary_text([FLOAT, EIGHT], 140)


def test_targets_that_are_quantized_alike_are_not_summed_up() -> None:
    assert summary_text([FLOAT], 80) == ""
    assert summary_text([EIGHT, structs.replace(EIGHT, target="b")], 80) == ""


def test_without_validation_there_are_sizes_alone() -> None:
    pair = [structs.replace(one, accuracy=None) for one in (FLOAT, EIGHT)]
    assert summary_text(pair, 80).splitlines()[1].split() == [
        *("target", "quantize", "bytes", "compressed")
    ]


def test_a_target_without_a_metric_has_a_gap() -> None:
    (metric,) = VALIDATION["metrics"]
    cosine = {**metric, "metric": "cosine", "output": "y", "before": 1.0, "after": 0.99}
    other = report("other", "weights", 10, validation={**VALIDATION, "metrics": [cosine]})
    bare = structs.replace(EIGHT, target="bare", accuracy=None)
    lines = summary_text([FLOAT, other, bare], 120).splitlines()
    assert lines[1].endswith("source   top-1  source  cosine of 'y'  off by")
    assert lines[2].split()[-3:] == ["-", "-", "0.0083"]
    assert lines[3].split()[-5:] == ["-", "-", "1", "0.99", "0.0083"]
    assert lines[4].split()[-5:] == ["-"] * 5


def four_targets() -> list[Report]:
    """Targets with two metrics of an output that has a long name."""
    output = "InceptionV3/Predictions/Reshape_1"
    metrics = [
        {**VALIDATION["metrics"][0], "metric": name, "output": output, "before": 1.0, "after": 0.99}
        for name in ("top1_agreement", "peak_agreement")
    ]
    validation = {**VALIDATION, "metrics": metrics}
    return [
        report(name, how, 23_853_000 // (number + 1), validation=validation)
        for number, (name, how) in enumerate(
            [
                ("float", ""),
                ("weights", "weights, 8 bits"),
                ("nodes", "nodes, observed"),
                ("lite", "int8"),
            ]
        )
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 140, 200])
def test_one_table_whatever_the_width(width: int) -> None:
    title, headings, *rows = summary_text(four_targets(), width).splitlines()
    assert title == "digits: 4 targets"
    assert headings.split()[:3] == ["target", "quantize", "bytes"]
    assert [row.split()[0] for row in rows] == ["float", "weights", "nodes", "lite"]
    assert max(map(len, [headings, *rows])) <= width


def test_a_narrow_table_gives_up_names_before_numbers() -> None:
    lines = summary_text(four_targets(), 140).splitlines()
    assert lines[1].split()[4:] == [
        *("source", "top1_agreement", "source", "peak_agreement", "off", "by")
    ]
    lines = summary_text(four_targets(), 80).splitlines()
    assert lines[1].split() == [
        *("target", "quantize", "bytes", "top1_agreement", "peak_agreement", "off", "by")
    ]
    assert lines[2].split() == ["float", "-", "23.9M", "0.99", "0.99", "0.0083"]


def test_each_recipe_has_a_table() -> None:
    others = [structs.replace(one, recipe="letters") for one in (FLOAT, EIGHT)]
    lines = summary_text([FLOAT, EIGHT, *others], 80).splitlines()
    assert [line for line in lines if line.endswith("targets")] == [
        "digits: 2 targets",
        "letters: 2 targets",
    ]


def test_no_line_is_wider_than_the_terminal() -> None:
    for width in (30, 40, 50, 60):
        lines = summary_text([FLOAT, EIGHT], width).splitlines()
        assert max(map(len, lines)) <= width
