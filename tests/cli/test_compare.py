"""``mobileprep compare``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.graph.files import write_graph
from tests.building.stages.jobs import classifier, op
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def _graphs(workdir: Path) -> None:
    graph = classifier()
    write_graph(Path("a.pb"), graph)
    write_graph(Path("a.pbtxt"), graph, as_text=True)
    write_graph(Path("shifted.pb"), classifier(shift=0.25))
    write_graph(Path("more.pb"), graph.with_nodes([*graph.nodes, op("z", "Relu", "y")]))


@pytest.mark.parametrize("other", ["a.pb", "a.pbtxt"])
def test_equal_graphs_print_nothing(run: Run, other: str) -> None:
    result = run("compare", "a.pb", other)
    assert (result.code, result.out, result.err) == (0, "", "")
    result = run("compare", "a.pb", other, "--json")
    assert (result.code, json.loads(result.out)) == (0, [])


def test_differences_are_printed_with_exit_code_one(run: Run) -> None:
    result = run("compare", "a.pb", "more.pb")
    assert (result.code, result.out) == (1, "+ z (Relu)\n")
    assert result.err == "1 added, 0 removed, 0 changed\n"
    result = run("compare", "more.pb", "a.pb")
    assert (result.code, result.out) == (1, "- z (Relu)\n")


def test_json_lists_differences(run: Run) -> None:
    result = run("compare", "a.pb", "shifted.pb", "--json")
    (difference,) = json.loads(result.out)
    assert result.code == 1
    assert (difference["kind"], difference["name"]) == ("constant", "b")
    assert difference["largest"] == 0.25


@pytest.mark.parametrize(("tolerance", "code"), [("0.25", 0), ("0.2", 1), ("0", 1)])
def test_tolerance_ignores_small_differences(run: Run, tolerance: str, code: int) -> None:
    assert run("compare", "a.pb", "shifted.pb", "--tolerance", tolerance).code == code


def test_unreadable_files_are_reported(run: Run) -> None:
    result = run("compare", "a.pb", "none.pb")
    assert (result.code, "none.pb" in result.err) == (4, True)
    Path("bad.pb").write_bytes(b"\x0a\xff")
    assert run("compare", "bad.pb", "a.pb").code == 4


@pytest.mark.parametrize(
    "arguments",
    [["a.pb"], *[["a.pb", "a.pb", f"--tolerance={x}"] for x in ("x", "-1", "nan", "inf")]],
)
def test_invalid_arguments_are_refused(run: Run, arguments: list[str]) -> None:
    assert run("compare", *arguments).code == 2
