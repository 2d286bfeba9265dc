"""The page about LiteRT: its command and its target, tried on the digits recipe."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from mobileprep.ir.files import read_graph
from mobileprep.ir.graph import Graph
from mobileprep.ir.serde import graph_to_bytes
from tests.cli.conftest import Run
from tests.cli.pages import DOCS, examples
from tests.transforms.graphs import node, placeholder
from tests.transforms.test_raise_control_flow import doubling

PAGE = DOCS / "litert.md"
FILE_IDENTIFIER = slice(4, 8)


def test_the_command_writes_a_file(digits: Path, run: Run) -> None:
    assert run("build", digits, "--target", "download").code == 0
    shutil.copy("out/digits/download/digits.pb", "frozen.pb")
    (command,) = [c for c, _ in examples(PAGE) if c.startswith("mobileprep tflite --in_graph")]
    told = run(*shlex.split(command)[1:])
    assert told.code == 0, told.err
    assert Path("model.tflite").read_bytes()[FILE_IDENTIFIER] == b"TFL3"


def test_the_target_of_the_page_builds_beside_others(digits: Path, run: Run) -> None:
    (target,) = re.findall(r"```yaml\ntargets:\n  (phone: .*)\n```", PAGE.read_text("utf-8"))
    text = digits.read_text("utf-8")
    recipe, _, _ = text.partition("\ntargets:")
    digits.write_text(f"{recipe}\ntargets: {{{target}}}\n", "utf-8")
    told = run("build", digits)
    assert told.code == 0, told.err
    model = Path("out/digits/phone/digits.tflite").read_bytes()
    assert model[FILE_IDENTIFIER] == b"TFL3"


def test_the_command_about_loops_raises_and_unrolls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [placeholder(), *doubling(3), node("y", "Identity", "v/out")]
    Path("loop.pb").write_bytes(graph_to_bytes(Graph(nodes)))
    (command,) = [c for c, _ in examples(PAGE) if c.startswith("mobileprep transform ")]
    words = shlex.split(command)[1:]
    told = run(*words)
    assert told.code == 0, told.err
    assert {n.op for n in read_graph(Path("raised.pb"))} == {"Placeholder", "Add", "Identity"}
    told = run(*(w.replace("unroll=4", "unroll=2") for w in words))
    assert told.code == 0, told.err
    assert "StatelessWhile" in {n.op for n in read_graph(Path("raised.pb"))}
