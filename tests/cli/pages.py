"""Pages whose commands are run in order, and their answers compared."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def examples(page: Path) -> list[tuple[str, str]]:
    """Each command of a page, and what it answers there."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    parts = [part.partition("\n") for part in "".join(blocks).split("$ ")[1:]]
    return [(command, answer) for command, _, answer in parts]


def is_answer(shown: str, told: str) -> bool:
    """Whether a command told what a page shows, with any text for three dots.

    Columns may be wider or narrower: they follow figures, whose last digits differ from processor
    to processor.
    """
    wanted, found = (re.sub(" +", " ", text) for text in (shown, told))
    return doctest.OutputChecker().check_output(wanted, found, doctest.ELLIPSIS)


def check_examples(page: Path, scripts: Path, *, least: int = 10) -> None:
    """Run a page's commands in the current folder.

    Args:
        page: the page.
        scripts: a folder to put the command into, as it would be installed.
        least: how many there are at least.
    """
    script = scripts / "mobileprep"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mobileprep "$@"\n')
    script.chmod(0o755)
    environ = {**os.environ, "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}
    assert len(examples(page)) >= least
    for command, answer in examples(page):
        done = subprocess.run(
            command, shell=True, env=environ, capture_output=True, check=False, text=True
        )
        told = done.stdout + done.stderr if "--json" in command else done.stderr + done.stdout
        assert is_answer(answer, told), f"$ {command}\n{told}"
