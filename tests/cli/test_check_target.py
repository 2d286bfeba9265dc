"""The verb ``check-target``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.ir.files import write_graph
from mobileprep.ir.graph import Graph
from tests.cli.conftest import Run
from tests.freezing.saved import write_saved_model
from tests.transforms.graphs import node, placeholder


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "g.pb"
    write_graph(path, Graph([placeholder(), node("c", "Ceil", "x"), node("r", "Relu", "c")]))
    return path


def test_gaps_and_mends_are_told(graph: Path, run: Run) -> None:
    told = run("check-target", graph)
    assert told.code == 1
    assert told.out == (
        "not compiled: the default build of TensorFlow 1.15 for android does not compile Ceil "
        "(node 'c')\n  mend: add cwise_op_ceil.cc to the build\n"
        f"{graph}: TensorFlow 1.15 for android: one thing is missing\n"
    )


@pytest.mark.parametrize(
    "flags", [["--selective"], ["--platform=linux"], ["--tensorflow", "2.21.0"]]
)
def test_nothing_is_missing(graph: Path, flags: list[str], run: Run) -> None:
    told = run("check-target", graph, *flags)
    assert told.code == 0
    assert told.out.endswith("nothing is missing\n")


def test_a_file_without_nodes_is_no_model_that_lacks_nothing(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "notes.pbtxt"
    path.write_text("# no node\n")
    told = run("check-target", path)
    assert (told.code, told.out) == (5, "")
    assert "notes.pbtxt: holds no nodes" in told.err


def test_json(graph: Path, run: Run) -> None:
    found = json.loads(run("check-target", graph, "--json").out)
    (gap,) = found.pop("gaps")
    assert found == {
        "graph": str(graph), "tensorflow": "1.15", "platform": "android", "loads": False,
    }  # fmt: skip
    assert (gap["op"], gap["cause"], gap["files"]) == ("Ceil", "not compiled", ["cwise_op_ceil.cc"])


def test_a_saved_model_is_frozen_first(tmp_path: Path, run: Run) -> None:
    write_saved_model(tmp_path)
    told = run("check-target", tmp_path, "--platform=linux")
    assert (told.code, told.out.splitlines()[-1]) == (
        0, f"{tmp_path}: TensorFlow 1.15 for linux: nothing is missing",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "code"),
    [(["--platform=andriod"], 6), (["--tensorflow=1.4"], 2)],
)
def test_unknown_builds_are_refused(graph: Path, flags: list[str], code: int, run: Run) -> None:
    assert run("check-target", graph, *flags).code == code


def test_a_file_that_is_none(tmp_path: Path, run: Run) -> None:
    assert run("check-target", tmp_path / "none.pb").code == 4
