"""``mobileprep compare``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.graph.files import write_graph
from tests.building.stages.jobs import classifier, op
from tests.cli.conftest import Run


@pytest.fixture(autouse=True)
def _graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    graph = classifier()
    write_graph(Path("a.pb"), graph)
    write_graph(Path("a.pbtxt"), graph, as_text=True)
    write_graph(Path("shifted.pb"), classifier(shift=0.25))
    write_graph(Path("more.pb"), graph.with_nodes([*graph.nodes, op("z", "Relu", "y")]))


@pytest.mark.parametrize("other", ["a.pb", "a.pbtxt"])
def test_equal_graphs_are_nothing_to_tell(run: Run, other: str) -> None:
    told = run("compare", "a.pb", other)
    assert (told.code, told.out, told.err) == (0, "", "")
    told = run("compare", "a.pb", other, "--json")
    assert (told.code, json.loads(told.out)) == (0, [])


def test_differences_are_told_and_make_the_exit_code_one(run: Run) -> None:
    told = run("compare", "a.pb", "more.pb")
    assert (told.code, told.out) == (1, "+ z (Relu)\n")
    assert told.err == "1 added, 0 removed, 0 changed\n"
    told = run("compare", "more.pb", "a.pb")
    assert (told.code, told.out) == (1, "- z (Relu)\n")


def test_json_tells_the_same(run: Run) -> None:
    told = run("compare", "a.pb", "shifted.pb", "--json")
    (difference,) = json.loads(told.out)
    assert told.code == 1
    assert (difference["kind"], difference["name"]) == ("constant", "b")
    assert difference["largest"] == 0.25


@pytest.mark.parametrize(("tolerance", "code"), [("0.25", 0), ("0.2", 1), ("0", 1)])
def test_small_differences_can_be_tolerated(run: Run, tolerance: str, code: int) -> None:
    assert run("compare", "a.pb", "shifted.pb", "--tolerance", tolerance).code == code


def test_files_that_cannot_be_read_are_told(run: Run) -> None:
    told = run("compare", "a.pb", "none.pb")
    assert (told.code, "none.pb" in told.err) == (4, True)
    Path("bad.pb").write_bytes(b"\x0a\xff")
    assert run("compare", "bad.pb", "a.pb").code == 4


@pytest.mark.parametrize(
    "arguments",
    [["a.pb"], *[["a.pb", "a.pb", f"--tolerance={x}"] for x in ("x", "-1", "nan", "inf")]],
)
def test_a_faulty_command_line_is_told(run: Run, arguments: list[str]) -> None:
    assert run("compare", *arguments).code == 2
