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


def test_gaps_are_grouped_by_cause(graph: Path, run: Run) -> None:
    result = run("check-target", graph)
    assert result.code == 1
    assert result.out == (
        "not compiled: 1 (1 node)\n"
        "  the default build of TensorFlow 1.15 for android does not compile `Ceil` (node `c`)\n"
        "    help: add cwise_op_ceil.cc to the build\n"
        f"{graph}: TensorFlow 1.15 for android: 1 problem found\n"
    )


def test_most_frequent_gaps_are_listed_first(tmp_path: Path, run: Run) -> None:
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
def test_supported_graph_has_no_problems(graph: Path, flags: list[str], run: Run) -> None:
    result = run("check-target", graph, *flags)
    assert result.code == 0
    assert result.out.endswith("no problems found\n")


def header(graph: Path, run: Run, release: str = "1.15") -> str:
    return run("header", f"--graphs={graph}", f"--tensorflow={release}").out


def test_header_next_to_the_model_is_used(graph: Path, run: Run) -> None:
    header_file = graph.parent / "ops_to_register.h"
    header_file.write_text(header(graph, run))
    result = run("check-target", graph)
    assert (
        result.out
        == f"{graph}: TensorFlow 1.15 for android with {header_file}: no problems found\n"
    )
    assert run("check-target", graph, "--selective=false").code == 1
    write_graph(graph, Graph([placeholder(), node("c", "Ceil", "x"), node("e", "Elu", "c")]))
    result = run("check-target", graph)
    assert result.code == 1
    assert "not registered: 1 (1 node)\n  `ops_to_register.h` does not register" in result.out


def test_release_defaults_to_that_of_the_header(graph: Path, run: Run) -> None:
    newer = [placeholder(), node("m", "BatchMatMulV3", "x x", T=None, Ta=DType.FLOAT,
                                 Tb=DType.FLOAT, Tout=DType.FLOAT)]  # fmt: skip
    write_graph(graph, Graph(newer))
    assert run("check-target", graph).code == 1
    header_file = graph.parent / "tensorflow-2.21/ops_to_register.h"
    header_file.parent.mkdir()
    header_file.write_text(header(graph, run, "2.21"))
    assert run("check-target", graph).code == 0
    result = run("check-target", graph, "--tensorflow=1.15")
    assert result.code == 1
    assert "is for TensorFlow 2.21, and is not used" in result.err


def test_header_that_registers_all_ops(graph: Path, run: Run) -> None:
    text = run("header", f"--graphs={graph}", "--default_ops=all").out
    (graph.parent / "ops_to_register.h").write_text(text)
    assert run("check-target", graph).code == 0
    write_graph(graph, Graph([placeholder(), node("n", "NoSuchOp", "x")]))
    assert run("check-target", graph).code == 1


def test_invalid_header_is_refused(graph: Path, run: Run) -> None:
    (graph.parent / "ops_to_register.h").write_text("#pragma once\n")
    result = run("check-target", graph)
    assert result.code == 4
    assert "ops_to_register.h: is not a registration header" in result.err


def test_file_without_nodes_is_refused(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "notes.pbtxt"
    path.write_text("# no node\n")
    result = run("check-target", path)
    assert (result.code, result.out) == (5, "")
    assert "notes.pbtxt: holds no nodes" in result.err


def test_json_lists_gaps(graph: Path, run: Run) -> None:
    data = json.loads(run("check-target", graph, "--json").out)
    (gap,) = data.pop("gaps")
    assert data == {
        "graph": str(graph), "tensorflow": "1.15", "platform": "android", "header": "",
        "loads": False,
    }  # fmt: skip
    assert (gap["op"], gap["cause"], gap["files"]) == ("Ceil", "not compiled", ["cwise_op_ceil.cc"])


def test_saved_model_is_frozen(tmp_path: Path, run: Run) -> None:
    write_saved_model(tmp_path)
    result = run("check-target", tmp_path, "--platform=linux")
    assert (result.code, result.out.splitlines()[-1]) == (
        0, f"{tmp_path}: TensorFlow 1.15 for linux: no problems found",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "code"),
    [(["--platform=andriod"], 6), (["--tensorflow=1.4"], 2)],
)
def test_unknown_builds_are_refused(graph: Path, flags: list[str], code: int, run: Run) -> None:
    assert run("check-target", graph, *flags).code == code


def test_missing_file_is_refused(tmp_path: Path, run: Run) -> None:
    assert run("check-target", tmp_path / "none.pb").code == 4
