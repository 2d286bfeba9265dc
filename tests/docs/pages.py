"""Documentation pages, and their examples.

A page is a sequence of blocks. ```` ```yaml title="name" ```` and ```` ```python title="name" ````
write a file. ```` ```console ```` runs commands and compares what they print, with any text for
three dots. A comment ``<!-- setup: COMMAND -->`` runs a command that the page does not show. Each
page runs in a directory of its own, with copies of the recipes of this repository.
"""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
)
_BLOCK = re.compile(
    r'^(?P<indent> *)```(?P<language>\w*)(?: title="(?P<file>[^"]+)")?\n(?P<body>.*?)^ *```$'
    r"|^<!-- setup: (?P<setup>.*?) -->$",
    re.DOTALL | re.MULTILINE,
)
# Verbs that exit with 1 if they find differences or problems, and verify with 4 if inputs differ.
_FINDER = re.compile(r"\bmobileprep (check-target|choose|diff|compare|migrate|verify)\b")


class Block(NamedTuple):
    """A code block, or a command that a page does not show (``setup``)."""

    language: str
    file: str
    body: str
    setup: str


def blocks(page: Path) -> list[Block]:
    """The code blocks and set-up commands of a page, in order."""
    result = []
    for m in _BLOCK.finditer(page.read_text("utf-8")):
        body = re.sub(f"^{m['indent'] or ''}", "", m["body"] or "", flags=re.MULTILINE)
        result.append(Block(m["language"] or "", m["file"] or "", body, m["setup"] or ""))
    return result


def page_id(page: Path) -> str:
    """``how-to/quantize`` for that page."""
    return str(page.relative_to(DOCS if DOCS in page.parents else ROOT).with_suffix(""))


def console_examples(page: Path) -> list[tuple[str, str]]:
    """Each command of a page with the output that the page shows."""
    return [e for b in blocks(page) if b.language == "console" for e in _commands(b.body)]


def matches(expected: str, printed: str) -> bool:
    """Whether a command printed the output on the page.

    Columns may be wider or narrower: last digits differ between processors.
    """
    expected, printed = (re.sub(" +", " ", text) for text in (expected, printed))
    return doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS)


def run_page(page: Path, scripts: Path) -> int:
    """Run the blocks of a page in the current directory; the number of commands.

    Args:
        page: the page.
        scripts: an empty directory for the command ``mobileprep``.
    """
    script = scripts / "mobileprep"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mobileprep "$@"\n')
    script.chmod(0o755)
    (scripts / "python").symlink_to(sys.executable)
    environ = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    commands = 0
    for block in blocks(page):
        if block.file:
            Path(block.file).parent.mkdir(parents=True, exist_ok=True)
            Path(block.file).write_text(block.body)
            continue
        shown: list[tuple[str, str | None]] = [(block.setup, None)] if block.setup else []
        if block.language == "console":
            shown += _commands(block.body)
        for command, expected in shown:
            done = subprocess.run(
                command, shell=True, env=environ, capture_output=True, check=False, text=True
            )
            if expected is None:
                assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
                continue
            commands += 1
            expects_failure = "error" in expected or "--exit-code" in command
            finds_something = _FINDER.search(command) and done.returncode in (1, 4)
            assert expects_failure or finds_something or done.returncode == 0, (
                f"$ {command}\nexit code {done.returncode}\n{done.stdout}{done.stderr}"
            )
            is_json = "--json" in command
            printed = done.stdout + done.stderr if is_json else done.stderr + done.stdout
            assert matches(expected, printed), f"$ {command}\n{printed}"
    return commands


def copy_recipes(page: Path) -> None:
    """Copy the recipes that a page uses to the current directory."""
    text = page.read_text("utf-8")
    if "recipes/" in text:
        shutil.copytree(ROOT / "recipes", "recipes")
    if "=mnist/" in text or " mnist/" in text:
        shutil.copytree(ROOT / "recipes" / "mnist", "mnist")
    shutil.copytree(ROOT / "recipes" / "digits", "digits")


def _commands(body: str) -> list[tuple[str, str]]:
    commands = []
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, output = part.replace("\\\n", "").partition("\n")
        commands.append((command, output))
    return commands
