"""The stage that counts the models of a recipe, and its rows in reports."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec import convert, structs

from mobileprep.building.report.collect import report_data, report_json
from mobileprep.building.report.markdown import reports_markdown
from mobileprep.building.report.summary import summary_text
from mobileprep.building.report_files import report_from
from mobileprep.building.stages.base import Job
from mobileprep.building.stages.candidate.run import run
from mobileprep.building.stages.candidate.spec import Candidate, CandidateStage
from mobileprep.graph.graph import Graph
from mobileprep.graph.serde import serialized_size
from mobileprep.recipe.settings import InputSpec
from mobileprep.targets.targets import find_device
from tests.building.report.reports import make_report
from tests.building.stages.jobs import classifier, interface, job, json_output, op, slots


def record_of(folder: Path, graph: Graph, artifact: str = "frozen", output: str = "y") -> Candidate:
    """Run the stage and return its record."""
    stage = CandidateStage(
        model="small",
        artifact=artifact,
        platform="android",
        registration=("1.15",),
        device=find_device("smartphone"),
        inputs=(InputSpec("x", shape=(-1, 3)),),
        **slots("graph", "interface"),
    )
    done: Job[CandidateStage] = job(folder, stage, graph=graph, interface=interface(output))
    run(done)
    return convert(json_output(done, "candidate.json"), Candidate)


def test_record_has_the_numbers_of_the_source(tmp_path: Path) -> None:
    record = record_of(tmp_path, classifier())
    assert (record.model, record.reason, record.lacks) == ("small", "", ())
    # 3 by 3 weights and a bias of 3; 2 operations for each weight, 1 for each element of the bias.
    assert (record.parameters, record.flops) == (12, 21)
    assert (record.float_bytes, record.eightbit_bytes) == (48, 48)
    # The parsed graph, the constants, and two tensors of three floats in buffers of 64 bytes.
    assert record.ram_bytes == serialized_size(classifier()) + 48 + 2 * 64
    assert record.best_seconds == 21 / 10e9
    assert record.likely_seconds == (21 / 10e9, 21 / 5e9)


def test_ops_that_litert_lacks(tmp_path: Path) -> None:
    graph = classifier().with_nodes([*classifier(), op("z", "Erfinv", "y")])
    assert record_of(tmp_path, graph, "tflite", "z").lacks == ("Erfinv",)


def test_ops_that_a_release_lacks(tmp_path: Path) -> None:
    graph = classifier().with_nodes([*classifier(), op("z", "Erfinv", "y")])
    assert record_of(tmp_path, graph, output="z").lacks == ("Erfinv (newer op)",)


def test_failure_is_recorded(tmp_path: Path) -> None:
    record = record_of(tmp_path, classifier(), output="gone")
    assert record.reason
    assert record == Candidate("small", record.reason)


SMALL = Candidate("small", "", 12, 48, 48, (50, 50), 21, (), 2.1e-9, (2.1e-9, 4.2e-9), 72)
LARGE = Candidate("large", "", 2_000_000, 8_000_000, 2_000_016, (800_000, 1_900_000), 3 * 10**9)
REPORTS = [
    structs.replace(make_report(), target=f"{c.model}/phone", candidate=c) for c in (SMALL, LARGE)
]


def test_summary_compares_the_models() -> None:
    lines = summary_text(REPORTS, 140).splitlines()
    assert lines[0] == "digits: 2 candidates"
    assert [line.split("  ")[0] for line in lines[1:]] == ["model", "small", "large"]
    assert lines[1].split()[-1] == "top-1"
    assert lines[2].split() == [
        *("small", "12", "48", "B", "48", "B", "50", "B", "21", "0.0021", "us"),
        *("0.0021", "us", "to", "0.0042", "us", "72", "B", "0", "0.9933"),
    ]
    assert lines[3].split() == [
        *("large", "2M", "8", "MB", "2", "MB", "800", "KB", "to", "1.9", "MB", "3G"),
        *("-", "-", "-", "0", "0.9933"),
    ]


def test_models_with_several_targets_are_named_like_them() -> None:
    other = structs.replace(
        REPORTS[0], target="small/tv", candidate=structs.replace(SMALL, lacks=("Erfinv",))
    )
    again = structs.replace(REPORTS[1], target="large/tv")
    lines = summary_text([*REPORTS, other, again], 140).splitlines()
    names = ["small/phone", "large", "small/tv"]
    assert [line.split("  ")[0] for line in lines[2:5]] == names
    assert lines[5] == "  small/tv lacks Erfinv"


def test_markdown_has_a_table_of_the_models() -> None:
    text = reports_markdown(REPORTS)
    assert "\nCandidates:\n\n| model | parameters | float |" in text
    assert (
        "\n| large | 2M | 8 MB | 2 MB | 800 KB to 1.9 MB | 3G | - | - | - | 0 | 0.9933 |\n" in text
    )
    assert "Candidates" not in reports_markdown([make_report()])


def test_json_has_the_model_only_if_there_are_several() -> None:
    assert "candidate" not in json.loads(report_json(make_report()))
    assert report_from(json.loads(report_json(REPORTS[0]))) == report_from(report_data(REPORTS[0]))
    assert report_from(json.loads(report_json(REPORTS[0]))).candidate == SMALL
    assert report_from(json.loads(report_json(make_report()))).candidate is None
