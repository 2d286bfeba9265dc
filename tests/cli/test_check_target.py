"""The verb ``check-target``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from tests.cli.conftest import Run
from tests.freezing.saved import write_saved_model
from tests.transforms.graphs import node, placeholder


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "g.pb"
    write_graph(path, Graph([placeholder(), node("c", "Ceil", "x"), node("r", "Relu", "c")]))
    return path


def test_gaps_are_told_by_cause(graph: Path, run: Run) -> None:
    told = run("check-target", graph)
    assert told.code == 1
    assert told.out == (
        "not compiled: 1 (1 node)\n"
        "  the default build of TensorFlow 1.15 for android does not compile `Ceil` (node `c`)\n"
        "    help: add cwise_op_ceil.cc to the build\n"
        f"{graph}: TensorFlow 1.15 for android: 1 problem found\n"
    )


def test_the_most_frequent_gaps_of_a_cause_are_examples(tmp_path: Path, run: Run) -> None:
    newer = ["Xlog1py", "BatchMatMulV3", "CheckNumericsV2", "SelectV2", "NoSuchOp", "NoSuchOp"]
    nodes = [node(f"n{i}", op, "x x") for i, op in enumerate(newer)]
    path = tmp_path / "g.pb"
    write_graph(path, Graph([placeholder(), node("c", "Ceil", "x"), *nodes]))
    few = run("check-target", path).out
    assert "newer op: 4 (5 nodes)\n" in few
    assert few.index("`NoSuchOp` (node `n4` and 1 more)") < few.index("newer op") + 200
    assert few.count("does not have the op") == 3
    assert "  and 1 more: use --verbose to list all\n" in few
    assert "5 problems found" in few
    for flag in ("-v", "--verbose"):
        every = run("check-target", path, flag).out
        assert every.count("does not have the op") == 4
        assert "more: use" not in every


@pytest.mark.parametrize(
    "flags", [["--selective"], ["--platform=linux"], ["--tensorflow", "2.21.0"]]
)
def test_nothing_is_missing(graph: Path, flags: list[str], run: Run) -> None:
    told = run("check-target", graph, *flags)
    assert told.code == 0
    assert told.out.endswith("no problems found\n")


def header(graph: Path, run: Run, release: str = "1.15") -> str:
    return run("header", f"--graphs={graph}", f"--tensorflow={release}").out


def test_the_header_next_to_the_model_is_used(graph: Path, run: Run) -> None:
    beside = graph.parent / "ops_to_register.h"
    beside.write_text(header(graph, run))
    told = run("check-target", graph)
    assert told.out == f"{graph}: TensorFlow 1.15 for android with {beside}: no problems found\n"
    assert run("check-target", graph, "--selective=false").code == 1
    write_graph(graph, Graph([placeholder(), node("c", "Ceil", "x"), node("e", "Elu", "c")]))
    told = run("check-target", graph)
    assert told.code == 1
    assert "not registered: 1 (1 node)\n  `ops_to_register.h` does not register" in told.out


def test_the_release_is_that_of_the_header(graph: Path, run: Run) -> None:
    newer = [placeholder(), node("m", "BatchMatMulV3", "x x", T=None, Ta=DType.FLOAT,
                                 Tb=DType.FLOAT, Tout=DType.FLOAT)]  # fmt: skip
    write_graph(graph, Graph(newer))
    assert run("check-target", graph).code == 1
    beside = graph.parent / "tensorflow-2.21/ops_to_register.h"
    beside.parent.mkdir()
    beside.write_text(header(graph, run, "2.21"))
    assert run("check-target", graph).code == 0
    told = run("check-target", graph, "--tensorflow=1.15")
    assert told.code == 1
    assert "is for TensorFlow 2.21, and is not used" in told.err


def test_a_header_that_registers_everything(graph: Path, run: Run) -> None:
    text = run("header", f"--graphs={graph}", "--default_ops=all").out
    (graph.parent / "ops_to_register.h").write_text(text)
    assert run("check-target", graph).code == 0
    write_graph(graph, Graph([placeholder(), node("n", "NoSuchOp", "x")]))
    assert run("check-target", graph).code == 1


def test_a_header_that_is_none(graph: Path, run: Run) -> None:
    (graph.parent / "ops_to_register.h").write_text("#pragma once\n")
    told = run("check-target", graph)
    assert told.code == 4
    assert "ops_to_register.h: is not a registration header" in told.err


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
        "graph": str(graph), "tensorflow": "1.15", "platform": "android", "header": "",
        "loads": False,
    }  # fmt: skip
    assert (gap["op"], gap["cause"], gap["files"]) == ("Ceil", "not compiled", ["cwise_op_ceil.cc"])


def test_a_saved_model_is_frozen_first(tmp_path: Path, run: Run) -> None:
    write_saved_model(tmp_path)
    told = run("check-target", tmp_path, "--platform=linux")
    assert (told.code, told.out.splitlines()[-1]) == (
        0, f"{tmp_path}: TensorFlow 1.15 for linux: no problems found",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "code"),
    [(["--platform=andriod"], 6), (["--tensorflow=1.4"], 2)],
)
def test_unknown_builds_are_refused(graph: Path, flags: list[str], code: int, run: Run) -> None:
    assert run("check-target", graph, *flags).code == code


def test_a_file_that_is_none(tmp_path: Path, run: Run) -> None:
    assert run("check-target", tmp_path / "none.pb").code == 4
