"""The page about LiteRT: its command and its target, tried on the digits recipe."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.pages import DOCS, examples

PAGE = DOCS / "litert.md"
FILE_IDENTIFIER = slice(4, 8)


def test_the_command_writes_a_file(digits: Path, run: Run) -> None:
    assert run("build", digits, "--target", "download").code == 0
    shutil.copy("out/digits/download/digits.pb", "frozen.pb")
    (command,) = [c for c, _ in examples(PAGE) if c.startswith("mobileprep tflite")]
    told = run(*shlex.split(command)[1:])
    assert told.code == 0, told.err
    assert Path("model.tflite").read_bytes()[FILE_IDENTIFIER] == b"TFL3"


def test_the_target_of_the_page_builds_beside_others(digits: Path, run: Run) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT's interpreter is not installed")
    (target,) = re.findall(r"```yaml\ntargets:\n  (phone: .*)\n```", PAGE.read_text("utf-8"))
    text = digits.read_text("utf-8")
    recipe, _, _ = text.partition("\nvalidation:")
    (validation,) = re.findall(r"```yaml\n(validation:\n.*?)```", PAGE.read_text("utf-8"), re.S)
    digits.write_text(f"{recipe}\n{validation}\ntargets: {{{target}}}\n", "utf-8")
    told = run("build", digits)
    assert told.code == 0, told.err
    model = Path("out/digits/phone/digits.tflite").read_bytes()
    assert model[FILE_IDENTIFIER] == b"TFL3"
