"""Every error names a file, is of bounded length, printable, and has a mend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep import errors
from mobileprep.cli._shared.failures import mend_of, tell_error
from mobileprep.errors import InternalError, MobileprepError, RecipeError
from mobileprep.graph.files import write_graph
from mobileprep.graph.graph import Graph
from mobileprep.graph.node import Node
from tests.cli.conftest import Run
from tests.fuzz.seeds import small_graph

OWN = (RecipeError, InternalError)  # a recipe's problems have mends beside them; the other is ours


def classes(base: type[MobileprepError] = MobileprepError) -> list[type[MobileprepError]]:
    found = [c for c in base.__subclasses__() if c.__module__ == errors.__name__]
    return found + [deeper for c in found for deeper in classes(c)]


@pytest.mark.parametrize("kind", [c for c in classes() if not issubclass(c, OWN)])
def test_every_class_has_a_mend_and_the_file_of_the_command(
    kind: type[MobileprepError], capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind("is bad")
    error.subject = "model.pb"
    assert tell_error(error, as_json=True) == kind.exit_code
    told = capsys.readouterr()
    assert told.err.splitlines()[1] == f"help: {mend_of(error)}"
    answer = json.loads(told.out)["error"]
    assert answer["hint"] == mend_of(error)
    assert kind.exit_code in (2, 9) or answer["where"] == "model.pb"


def test_the_file_of_the_command_is_not_told_beside_another(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for where, told in (
        ("labels.txt", "labels.txt"),
        ("WAV file", "model.pb: WAV file"),
        ("digits/phone/package", "model.pb: digits/phone/package"),
        ("/", "/"),
        ("model.pb, byte 3", "model.pb, byte 3"),
    ):
        error = errors.CorruptFileError("is bad", "mend", where)
        error.subject = "model.pb"
        tell_error(error, as_json=False)
        assert capsys.readouterr().err == f"error: {told}: is bad [MP400]\nhelp: mend\n"


def test_names_do_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    tell_error(errors.CorruptFileError("\x1b[31m\u202e", "\x07", "a\rb"), as_json=False)
    told = capsys.readouterr().err
    assert all(c.isprintable() or c == "\n" for c in told)
    assert "\\x1b[31m\\u202e" in told


def test_long_names_and_many_lines_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    tell_error(errors.CorruptFileError("x" * 70_000 + "end", "mend"), as_json=False)
    told = capsys.readouterr().err
    assert len(told) < 1100
    assert "...xxx" in told
    assert told.endswith("end [MP400]\nhelp: mend\n")
    tell_error(RecipeError("\n".join(f"r.yaml:{i}:1: bad" for i in range(500))), as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 61
    assert lines[-1] == "... and 440 more lines"


def test_a_graph_that_is_not_whole_is_named_by_every_verb(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "g.pb"
    nodes = [n for n in small_graph() if n.name != "relu"]
    write_graph(path, Graph([*nodes, Node("z", "NoSuchOp")]))
    out = tmp_path / "o"
    for arguments in (
        ("run", f"--graph={path}", "--feed=x=random", "--fetch=y"),
        ("transform", f"--in_graph={path}", f"--out_graph={out}", "--outputs=y",
         "--transforms=fold_constants"),
        ("freeze", f"--input_graph={path}", f"--output_graph={out}", "--output_node_names=y"),
        ("diff", path, path),
        ("init", path),
        ("benchmark", f"--graph={path}"),
    ):  # fmt: skip
        told = run(*arguments)
        assert told.code in (5, 6), arguments
        assert str(path) in told.err
        assert "\nhelp: " in told.err


def test_names_in_answers_do_nothing_to_a_terminal(tmp_path: Path, run: Run) -> None:
    path, other = tmp_path / "g.pb", tmp_path / "valid.pb"
    write_graph(path, Graph([Node("a\u202e\x1b[31m", "NoOp"), Node("b\x07", "No\x1bSuchOp")]))
    write_graph(other, small_graph())
    for verb in ("compare", "diff", "check-target", "migrate", "benchmark", "summarize"):
        files = (path, other) if verb in ("compare", "diff") else (f"--graph={path}",)
        files = (f"--in_graph={path}",) if verb == "summarize" else files
        told = run(verb, *((path,) if verb in ("check-target", "migrate") else files))
        assert all(c.isprintable() or c in "\n\t" for c in told.out + told.err), verb
