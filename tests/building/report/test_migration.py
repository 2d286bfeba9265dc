"""Runtimes in reports."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from mobileprep.building.report.collect import report_json
from mobileprep.building.report.markdown import reports_markdown
from mobileprep.building.report.text import report_text
from mobileprep.building.report_files import report_from
from mobileprep.building.stages.migration.report import (
    migration_lines,
    migration_markdown,
    way_lines,
)
from mobileprep.building.stages.migration.spec import MigrationRecord
from mobileprep.targets.migration.records import Advice, Lack, Migration, Route, RouteSize
from tests.building.report.reports import make_report

MOBILE = Route(
    "TensorFlow Mobile 1.15",
    "as it is",
    inputs=("wav",),
    operators=7,
    kinds=9,
    code_bytes=2000,
    sizes=(RouteSize("float", 1000, 1.0), RouteSize("float16", 600, 0.6)),
)
LITE = Route(
    "LiteRT",
    "after changes",
    lacks=(Lack("DecodeWav", "so|und", 2, "it does not decode audio", "decode in the app"),),
    inputs=("sound",),
    transforms=("remove_dropout",),
    operators=3,
    kinds=2,
    sizes=(RouteSize("float", 1200, 1.2),),
)
NONE = structs.replace(
    LITE, verdict="no", left=(Lack("", "", 1, "it is odd", "fix it"),), sizes=(), operators=0
)
ADVICE = Advice("audio", "DecodeWav", "so|und", 2, "read audio in the app", ("sound",))
MIGRATION = Migration(("wav",), ("y",), 7, 1000, (MOBILE, LITE), (ADVICE,))
RECORD = MigrationRecord("quantize_nodes", MIGRATION)


def test_text_lists_runtimes_and_required_changes() -> None:
    assert list(migration_lines(RECORD)) == [
        "runtimes 7 nodes, 1,000 bytes; wav to y, before quantize_nodes",
        "  TensorFlow Mobile 1.15: runs it as it is",
        "    7 nodes of 9 kernels, about 2,000 bytes of code",
        "    bytes: float 1,000 (100%), float16 600 (60%)",
        "  LiteRT: runs it after changes",
        "    lacks DecodeWav ('so|und' and 1 more): it does not decode audio; decode in the app",
        "    after: --inputs=sound, remove_dropout",
        "    3 operators of 2 kinds",
        "    bytes: float 1,200 (120%)",
        "  Cut off, or feed instead:",
        "    DecodeWav ('so|und' and 1 more): read audio in the app (sound)",
    ]


def test_text_lists_gaps_after_changes() -> None:
    record = MigrationRecord("", structs.replace(MIGRATION, routes=(NONE,), advice=()))
    assert list(migration_lines(record))[1:] == [
        "  LiteRT: does not run it",
        "    lacks DecodeWav ('so|und' and 1 more): it does not decode audio; decode in the app",
        "    lacks after changes the graph: it is odd; fix it",
    ]


def test_markdown_has_a_table_and_a_list_of_gaps() -> None:
    lines = list(migration_markdown(RECORD))
    named = "DecodeWav ('so&#124;und' and 1 more)"
    assert lines[3:] == [
        "| runtime | runs it | float | float16 | weights |",
        "| :-- | --: | --: | --: | --: |",
        "| TensorFlow Mobile 1.15 | as it is | 1,000 | 600 | - |",
        "| LiteRT | after changes | 1,200 | - | - |",
        "",
        f"- LiteRT lacks {named}: it does not decode audio; decode in the app",
        "- LiteRT after: --inputs=sound, remove&#95;dropout",
        f"- {named}: read audio in the app (sound)",
    ]


def test_findings_with_one_fix_are_grouped() -> None:
    lacks = tuple(Lack(f"Op{i}", f"n{i}", i, f"no kernel {i}", "build it in") for i in range(1, 6))
    other = Lack("Odd", "n", 1, "it is odd", "cut it off")
    route = structs.replace(NONE, lacks=(other, *lacks), left=(other, *lacks))
    migration = structs.replace(MIGRATION, routes=(route,), advice=())
    head = ["  lacks Odd ('n'): it is odd; cut it off", "  lacks 15 nodes of 5 ops; build it in:"]
    examples = [
        "    Op1 ('n1'): no kernel 1",
        "    Op2 ('n2' and 1 more): no kernel 2",
        "    Op3 ('n3' and 2 more): no kernel 3",
    ]
    assert list(way_lines(migration))[1:] == [*head, *examples, "    ... and 2 more (-v shows all)"]
    rest = ["    Op4 ('n4' and 3 more): no kernel 4", "    Op5 ('n5' and 4 more): no kernel 5"]
    assert list(way_lines(migration, verbose=True))[1:] == [*head, *examples, *rest]


def test_untried_runtimes_have_a_reason() -> None:
    record = MigrationRecord("", untried="the graph cannot be read")
    assert list(migration_lines(record)) == ["runtimes not tried: the graph cannot be read"]
    assert list(migration_markdown(record)) == [
        "",
        "Runtimes are not tried: the graph cannot be read.",
    ]


def test_reports_include_the_migration_on_request() -> None:
    report = structs.replace(make_report(), migration=RECORD)
    for text in (report_text(report), reports_markdown([report])):
        assert "wav to y" in text
    for text in (report_text(make_report()), reports_markdown([make_report()])):
        assert "untimes" not in text


def test_migration_is_read_from_json() -> None:
    report = structs.replace(make_report(), migration=RECORD)
    data = json.loads(report_json(report))
    assert report_from(data).migration == RECORD
    data["migration"]["found"]["routes"][0]["verdict"] = "perhaps"
    with pytest.raises(ValueError, match="'verdict' has a value of another type"):
        report_from(data)
