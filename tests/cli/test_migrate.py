"""The verb ``migrate``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph import attrs as attr
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.building.stages.jobs import classifier, op
from tests.cli.conftest import Run
from tests.ops.lookup.test_tables import from_file
from tests.targets.migration.graphs import speech


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_file_without_nodes_is_no_model_that_runs(run: Run) -> None:
    Path("notes.pbtxt").write_text("# no node\n")
    told = run("migrate", "notes.pbtxt")
    assert (told.code, told.out) == (5, "")
    assert "notes.pbtxt: holds no nodes" in told.err


def test_json_has_the_same(run: Run) -> None:
    write_graph(Path("m.pb"), classifier())
    found = json.loads(run("migrate", "m.pb", "--json", "--platform=ios").out)
    assert found["platform"] == "ios"
    assert [route["verdict"] for route in found["routes"]] == ["as it is"] * 3


def test_the_cut_that_is_given_is_what_is_tried(run: Run) -> None:
    write_graph(Path("speech.pb"), speech())
    told = run("migrate", "speech.pb", "--inputs=sound", "--outputs=probabilities")
    assert told.code == 0, told.err
    assert "sound to probabilities" in told.out
    assert "lacks" not in told.out
    assert "LiteRT: runs it as it is" in told.out
    assert "DecodeWav" not in told.out
    whole = json.loads(run("migrate", "speech.pb", "--json").out)
    part = json.loads(run("migrate", "speech.pb", "--inputs=sound", "--json").out)
    for before, after in zip(whole["routes"][:2], part["routes"][:2], strict=True):
        assert after["operators"] < before["operators"]


def test_verbose_lists_all_findings(run: Run) -> None:
    nodes = [op(f"n{i}", "Add", "x", "x", T=attr.dtype(DType.INT32)) for i in range(2)]
    kinds = ("Less", "LessEqual", "Greater", "Mul")
    nodes += [
        op(f"k{i}", kind, "x", "x", T=attr.dtype(DType.INT32)) for i, kind in enumerate(kinds)
    ]
    whole = Node("x", "Placeholder", attrs={"dtype": attr.dtype(DType.INT32)})
    write_graph(Path("m.pb"), Graph([whole, *nodes]))
    short, full = run("migrate", "m.pb").out, run("migrate", "m.pb", "-v").out
    assert "  lacks 5 nodes of 4 ops; build with `ops_to_register.h`" in short
    assert "... and 1 more (-v shows all)" in short
    assert full.count("compiles no kernel of") == 4
    assert "-v shows all" not in full


def test_no_way_to_litert_is_exit_code_1(run: Run) -> None:
    odd = op("z", "Erfinv", "y")
    write_graph(Path("m.pb"), classifier().with_nodes([*classifier(), odd]))
    told = run("migrate", "m.pb")
    assert told.code == 1
    assert "LiteRT: does not run it\n  lacks Erfinv ('z')" in told.out


def test_what_is_no_graph_or_no_tensor_is_refused(run: Run) -> None:
    write_graph(Path("m.pb"), classifier())
    assert run("migrate", "none.pb").code == 4
    assert run("migrate", "m.pb", "--outputs=nowhere").code == 2
    assert run("tflite", "--in_graph=m.pb", "--out_file=m.tflite").code == 0
    told = run("migrate", "m.tflite")
    assert told.code == 2
    assert "for LiteRT already" in told.err


def test_words_beside_the_model_are_looked_up_on_litert(run: Run) -> None:
    Path("words.txt").write_text("yes\nno\n")
    write_graph(Path("m.pb"), from_file(Path("words.txt"), key=DType.STRING, value=DType.INT64))
    routes = json.loads(run("migrate", "m.pb", "--json").out)["routes"]
    assert {route["runtime"]: route["verdict"] for route in routes}["LiteRT"] == "as it is"


def test_another_release_is_tried(run: Run) -> None:
    newer = op("z", "Xlog1py", "y", "y")
    write_graph(Path("m.pb"), classifier().with_nodes([*classifier(), newer]))
    assert "TensorFlow Mobile 1.15: does not run it" in run("migrate", "m.pb").out
    told = run("migrate", "m.pb", "--tensorflow=2.21").out
    assert "TensorFlow Mobile 2.21, selective: runs it as it is" in told
