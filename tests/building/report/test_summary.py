"""The summary of the targets of a recipe."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from mobileprep.building.report.collect import Report
from mobileprep.building.report.summary import summary_text
from mobileprep.building.stages.package.spec import CompressRecord, ModelFacts
from tests.building.report.reports import VALIDATION, make_report


def report(target: str, quantize: str, size: int, **changes: Any) -> Report:
    model = ModelFacts("digits.pb", 1, 1, 1, size)
    compressed = CompressRecord(size // 2, "deflate by X 1")
    return structs.replace(
        make_report(**changes), target=target, quantize=quantize, model=model, compressed=compressed
    )


FLOAT = report("float", "", 42_600)
INT8 = report("eight", "nodes, observed", 18_163)


def test_summary_has_sizes_and_metrics() -> None:
    assert summary_text([FLOAT, INT8], 80).splitlines() == [
        "digits: 2 targets",
        "target  quantize          bytes  compressed  source   top-1  off by",
        "float   -                42,600      21,300  0.9933  0.9911  0.0083",
        "eight   nodes, observed  18,163       9,081  0.9933  0.9911  0.0083",
    ]


def test_rows_name_the_measured_graph_or_file() -> None:
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
    assert "measured on" not in summary_text([FLOAT, INT8], 140)


def test_equally_quantized_targets_have_no_summary() -> None:
    assert summary_text([FLOAT], 80) == ""
    assert summary_text([INT8, structs.replace(INT8, target="b")], 80) == ""


def test_summary_without_validation_has_only_sizes() -> None:
    pair = [structs.replace(one, accuracy=None) for one in (FLOAT, INT8)]
    assert summary_text(pair, 80).splitlines()[1].split() == [
        *("target", "quantize", "bytes", "compressed")
    ]


def test_missing_metric_is_a_dash() -> None:
    (metric,) = VALIDATION["metrics"]
    cosine = {**metric, "metric": "cosine", "output": "y", "before": 1.0, "after": 0.99}
    other = report("other", "weights", 10, validation={**VALIDATION, "metrics": [cosine]})
    bare = structs.replace(INT8, target="bare", accuracy=None)
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


@pytest.mark.parametrize("width", [80, 100, 140, 200])
def test_single_table_at_every_width(width: int) -> None:
    title, headings, *rows = summary_text(four_targets(), width).splitlines()
    assert title == "digits: 4 targets"
    assert headings.split()[:3] == ["target", "quantize", "bytes"]
    assert [row.split()[0] for row in rows] == ["float", "weights", "nodes", "lite"]
    assert max(map(len, [headings, *rows])) <= width


def test_narrow_table_omits_columns() -> None:
    lines = summary_text(four_targets(), 140).splitlines()
    assert lines[1].split()[4:] == [
        *("source", "top1_agreement", "source", "peak_agreement", "off", "by")
    ]
    lines = summary_text(four_targets(), 80).splitlines()
    assert lines[1].split() == [
        *("target", "quantize", "bytes", "top1_agreement", "peak_agreement", "off", "by")
    ]
    assert lines[2].split() == ["float", "-", "23,853,000", "0.99", "0.99", "0.0083"]


def test_recipes_have_separate_tables() -> None:
    others = [structs.replace(one, recipe="letters") for one in (FLOAT, INT8)]
    lines = summary_text([FLOAT, INT8, *others], 80).splitlines()
    assert [line for line in lines if line.endswith("targets")] == [
        "digits: 2 targets",
        "letters: 2 targets",
    ]


def test_lines_fit_the_terminal() -> None:
    for width in (30, 40, 50, 60):
        lines = summary_text([FLOAT, INT8], width).splitlines()
        assert max(map(len, lines)) <= width
