"""The verb ``explain`` finds codes, messages, and log lines of apps, and lists affected nodes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from mobileprep.error_codes import CODES, ErrorCode
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.cli.conftest import Run

NO_KERNEL = "Invalid argument: No OpKernel was registered to support Op 'Erf' with these attrs"


@pytest.mark.parametrize("entry", CODES, ids=lambda entry: entry.code)
def test_every_code_is_explained(entry: ErrorCode, run: Run) -> None:
    result = run("explain", entry.code.lower(), "--json")
    explained = json.loads(result.out)
    assert result.code == 0
    assert (explained["code"], explained["fix"]) == (entry.code, entry.fix)
    assert explained["recipe"] == "" or isinstance(yaml.safe_load(explained["recipe"]), dict)


def test_a_log_line_lists_the_nodes_of_the_model(tmp_path: Path, run: Run) -> None:
    graph = Graph(
        [Node("x", "Placeholder"), Node("a/erf", "Erf", ("x",)), Node("b", "Neg", ("x",))]
    )
    write_graph(tmp_path / "model.pb", graph)
    result = run("explain", NO_KERNEL, "--model", tmp_path / "model.pb")
    assert result.code == 0
    assert "MP101: Kernel not registered\n" in result.out
    assert "op: Erf\nnode: a/erf\nfix: " in result.out
    assert "recipe:\n  transforms:\n" in result.out


def test_words_of_a_message_need_no_quotes(run: Run) -> None:
    result = run("explain", "No", "session", "factory", "registered")
    assert result.out.startswith("MP104: ")


def test_a_log_is_read_from_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"E/native: loading\nE/native: {NO_KERNEL}\n"))
    assert run("explain", "-").out.startswith("MP101: ")


def test_a_message_of_mobileprep_is_found_by_its_code(run: Run) -> None:
    result = run("explain", "error: model.pb: is empty [MP400]")
    assert result.out.startswith("MP400: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [("MP999", "unknown error code 'MP999'"), ("all is well", "no known error in the text")],
)
def test_other_texts_are_usage_errors(text: str, message: str, run: Run) -> None:
    result = run("explain", text)
    assert result.code == 2
    assert f"error: {message} [MP200]\nhelp: " in result.err
