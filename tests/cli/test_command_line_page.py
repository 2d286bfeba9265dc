"""The commands of ``docs/command-line.md``, run in order, and their answers compared."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"


def examples() -> list[tuple[str, str]]:
    """Each command of the page, and what it answers there."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    parts = [part.partition("\n") for part in "".join(blocks).split("$ ")[1:]]
    return [(command, answer) for command, _, answer in parts]


def test_every_command_answers_as_the_page_says(digits: Path, tmp_path: Path) -> None:
    script = tmp_path / "bin" / "mobileprep"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mobileprep "$@"\n')
    script.chmod(0o755)
    environ = {**os.environ, "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}
    checker = doctest.OutputChecker()
    assert len(examples()) > 10
    for command, answer in examples():
        done = subprocess.run(
            command, shell=True, env=environ, capture_output=True, check=False, text=True
        )
        told = done.stdout + done.stderr if "--json" in command else done.stderr + done.stdout
        assert checker.check_output(answer, told, doctest.ELLIPSIS), f"$ {command}\n{told}"


def test_the_kinds_of_errors_are_all_told() -> None:
    from mobileprep.cli._failures import error_kind
    from mobileprep.errors import InternalError, MobileprepError

    for error in set(MobileprepError.__subclasses__()) - {InternalError}:
        assert f"`{error_kind(error())}`" in PAGE.read_text()
