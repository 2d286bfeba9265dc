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

pytestmark = pytest.mark.usefixtures("workdir")


def test_file_without_nodes_is_refused(run: Run) -> None:
    Path("notes.pbtxt").write_text("# no node\n")
    result = run("migrate", "notes.pbtxt")
    assert (result.code, result.out) == (5, "")
    assert "notes.pbtxt: holds no nodes" in result.err


def test_json_lists_routes(run: Run) -> None:
    write_graph(Path("m.pb"), classifier())
    data = json.loads(run("migrate", "m.pb", "--json", "--platform=ios").out)
    assert data["platform"] == "ios"
    assert [route["verdict"] for route in data["routes"]] == ["as it is"] * 3


def test_inputs_and_outputs_select_a_subgraph(run: Run) -> None:
    write_graph(Path("speech.pb"), speech())
    result = run("migrate", "speech.pb", "--inputs=sound", "--outputs=probabilities")
    assert result.code == 0, result.err
    assert "sound to probabilities" in result.out
    assert "lacks" not in result.out
    assert "LiteRT: runs it as it is" in result.out
    assert "DecodeWav" not in result.out
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


def test_unsupported_op_gives_exit_code_one(run: Run) -> None:
    odd = op("z", "Erfinv", "y")
    write_graph(Path("m.pb"), classifier().with_nodes([*classifier(), odd]))
    result = run("migrate", "m.pb")
    assert result.code == 1
    assert "LiteRT: does not run it\n  lacks Erfinv ('z')" in result.out


def test_missing_graphs_and_tensors_are_refused(run: Run) -> None:
    write_graph(Path("m.pb"), classifier())
    assert run("migrate", "none.pb").code == 4
    assert run("migrate", "m.pb", "--outputs=nowhere").code == 2
    assert run("tflite", "--in_graph=m.pb", "--out_file=m.tflite").code == 0
    result = run("migrate", "m.tflite")
    assert result.code == 2
    assert "for LiteRT already" in result.err


def test_vocabulary_file_is_supported_on_litert(run: Run) -> None:
    Path("words.txt").write_text("yes\nno\n")
    write_graph(Path("m.pb"), from_file(Path("words.txt"), key=DType.STRING, value=DType.INT64))
    routes = json.loads(run("migrate", "m.pb", "--json").out)["routes"]
    assert {route["runtime"]: route["verdict"] for route in routes}["LiteRT"] == "as it is"


def test_tensorflow_option_selects_the_release(run: Run) -> None:
    newer = op("z", "Xlog1py", "y", "y")
    write_graph(Path("m.pb"), classifier().with_nodes([*classifier(), newer]))
    assert "TensorFlow Mobile 1.15: does not run it" in run("migrate", "m.pb").out
    result = run("migrate", "m.pb", "--tensorflow=2.21").out
    assert "TensorFlow Mobile 2.21, selective: runs it as it is" in result
