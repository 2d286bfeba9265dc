"""The page about security: its commands hold a run to a bound."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from mobileprep.graph.files import write_graph
from tests.building.stages.jobs import classifier
from tests.cli.conftest import Run
from tests.cli.pages import DOCS
from tests.fuzz.__main__ import import_formats, parser

PAGE = (DOCS / "security.md").read_text("utf-8")


def commands(start: str) -> list[list[str]]:
    """The commands of the page that begin so, without what they begin with."""
    lines = re.findall(rf"^{start} (.*)$", PAGE, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def test_a_run_is_held_to_a_bound(tmp_path: Path, run: Run) -> None:
    model = tmp_path / "model.pb"
    write_graph(model, classifier())
    (arguments,) = commands("mobileprep run")
    given = [a.replace("model.pb", str(model)).replace("image=", "x=") for a in arguments]
    assert run("run", *given).code == 0


def test_the_fuzzing_commands_are_understood() -> None:
    import_formats()
    found = [parser().parse_args(arguments) for arguments in commands("python -m tests.fuzz")]
    assert [args.cases for args in found] == [100_000, 100_000]
