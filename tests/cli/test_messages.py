"""Errors name a file, have a hint, and are printable and of bounded length."""

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

WITHOUT_HINT = (RecipeError, InternalError)  # problems of recipes have their own hints


def classes(base: type[MobileprepError] = MobileprepError) -> list[type[MobileprepError]]:
    direct = [c for c in base.__subclasses__() if c.__module__ == errors.__name__]
    return direct + [deeper for c in direct for deeper in classes(c)]


@pytest.mark.parametrize("kind", [c for c in classes() if not issubclass(c, WITHOUT_HINT)])
def test_errors_have_a_hint_and_name_the_file(
    kind: type[MobileprepError], capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind("is bad")
    error.subject = "model.pb"
    assert tell_error(error, as_json=True) == kind.exit_code
    output = capsys.readouterr()
    assert output.err.splitlines()[1] == f"help: {mend_of(error)}"
    answer = json.loads(output.out)["error"]
    assert answer["hint"] == mend_of(error)
    assert kind.exit_code in (2, 9) or answer["where"] == "model.pb"


def test_file_of_the_command_is_added_only_if_no_other_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for where, expected in (
        ("labels.txt", "labels.txt"),
        ("WAV file", "model.pb: WAV file"),
        ("digits/phone/package", "model.pb: digits/phone/package"),
        ("/", "/"),
        ("model.pb, byte 3", "model.pb, byte 3"),
    ):
        error = errors.CorruptFileError("is bad", "try again", where)
        error.subject = "model.pb"
        tell_error(error, as_json=False)
        assert capsys.readouterr().err == f"error: {expected}: is bad [MP400]\nhelp: try again\n"


def test_control_characters_in_errors_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    tell_error(errors.CorruptFileError("\x1b[31m\u202e", "\x07", "a\rb"), as_json=False)
    err = capsys.readouterr().err
    assert all(c.isprintable() or c == "\n" for c in err)
    assert "\\x1b[31m\\u202e" in err


def test_long_messages_are_truncated(capsys: pytest.CaptureFixture[str]) -> None:
    tell_error(errors.CorruptFileError("x" * 70_000 + "end", "try again"), as_json=False)
    err = capsys.readouterr().err
    assert len(err) < 1100
    assert "...xxx" in err
    assert err.endswith("end [MP400]\nhelp: try again\n")
    tell_error(RecipeError("\n".join(f"r.yaml:{i}:1: bad" for i in range(500))), as_json=False)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 61
    assert lines[-1] == "... and 440 more lines"


def test_incomplete_graph_is_named_by_all_verbs(tmp_path: Path, run: Run) -> None:
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
        result = run(*arguments)
        assert result.code in (5, 6), arguments
        assert str(path) in result.err
        assert "\nhelp: " in result.err


def test_control_characters_in_output_are_escaped(tmp_path: Path, run: Run) -> None:
    path, other = tmp_path / "g.pb", tmp_path / "valid.pb"
    write_graph(path, Graph([Node("a\u202e\x1b[31m", "NoOp"), Node("b\x07", "No\x1bSuchOp")]))
    write_graph(other, small_graph())
    for verb in ("compare", "diff", "check-target", "migrate", "benchmark", "summarize"):
        files = (path, other) if verb in ("compare", "diff") else (f"--graph={path}",)
        files = (f"--in_graph={path}",) if verb == "summarize" else files
        result = run(verb, *((path,) if verb in ("check-target", "migrate") else files))
        assert all(c.isprintable() or c in "\n\t" for c in result.out + result.err), verb
