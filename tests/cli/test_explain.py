"""The verb ``explain`` finds codes, messages, and log lines of apps, and lists affected nodes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from mobileprep import to_tflite
from mobileprep.error_codes import CODES, ErrorCode
from mobileprep.formats.dtypes import DType
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.cli.conftest import Run
from tests.litert.graphs import feed, op

NO_KERNEL = "Invalid argument: No OpKernel was registered to support Op 'Erf' with these attrs"


@pytest.mark.parametrize("entry", CODES, ids=lambda entry: entry.code)
def test_every_code_is_explained(entry: ErrorCode, run: Run) -> None:
    result = run("explain", entry.code.lower(), "--json")
    explained = json.loads(result.out)
    assert result.code == 0
    assert (explained["code"], explained["fix"]) == (entry.code, entry.fix)
    assert explained["recipe"] == "" or isinstance(yaml.safe_load(explained["recipe"]), dict)


def test_log_line_lists_affected_nodes(tmp_path: Path, run: Run) -> None:
    graph = Graph(
        [Node("x", "Placeholder"), Node("a/erf", "Erf", ("x",)), Node("b", "Neg", ("x",))]
    )
    write_graph(tmp_path / "model.pb", graph)
    result = run("explain", NO_KERNEL, "--model", tmp_path / "model.pb")
    assert result.code == 0
    assert "MP101: Kernel not registered\n" in result.out
    assert "op: Erf\nnode: a/erf\nfix: " in result.out
    assert "recipe:\n  transforms:\n" in result.out


def test_litert_log_line_lists_operators(tmp_path: Path, run: Run) -> None:
    nodes = [feed("x", (3, 3)), op("y", "MatrixInverse", ["x"], T=DType.FLOAT, adjoint=False)]
    nodes.append(op("z", "Relu", ["y"], T=DType.FLOAT))
    model = tmp_path / "model.tflite"
    to_tflite(Graph(nodes), model, flex=True)
    flex = run("explain", "Node number 0 (FlexMatrixInverse) failed to prepare.", "--model", model)
    assert "op: MatrixInverse\nnode: y\n" in flex.out
    line = "Didn't find op for builtin opcode 'RELU' version '9'"
    assert "version: 9\nnode: z\n" in run("explain", line, "--model", model).out


def test_message_needs_no_quotes(run: Run) -> None:
    result = run("explain", "No", "session", "factory", "registered")
    assert result.out.startswith("MP104: ")


def test_log_is_read_from_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"E/native: \xff\nE/native: " + NO_KERNEL.encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(log)))
    assert run("explain", "-").out.startswith("MP101: ")


def test_message_is_found_by_its_code(run: Run) -> None:
    for message in ("is empty", "No session factory registered"):
        result = run("explain", f"error: model.pb: {message} [MP400]")
        assert result.out.startswith("MP400: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MP999", "unknown error code 'MP999'"),
        ("no labels, no class: all is well", "no known error in the text"),
    ],
)
def test_unknown_messages_are_refused(text: str, message: str, run: Run) -> None:
    result = run("explain", text)
    assert result.code == 2
    assert f"error: {message} [MP200]\nhelp: " in result.err
