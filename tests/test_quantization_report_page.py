"""The page on quantization: what its section on the report shows is what is printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.pages import is_answer

ROOT = Path(__file__).resolve().parents[1]
SECTION = "\n## The report\n"


def examples() -> list[tuple[str, str]]:
    page = (ROOT / "docs" / "quantization.md").read_text(encoding="utf-8")
    section = page.split(SECTION, 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    parts = [part.partition("\n") for part in "".join(found).split("$ ")[1:]]
    return [(command, answer) for command, _, answer in parts]


def without_digits(text: str) -> str:
    """Numbers differ in their last digits from processor to processor."""
    return re.sub(r"\d[\d,]*(\.\d+)?(e-\d+)?", "#", text)


@pytest.mark.slow
def test_the_section_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "recipes", "recipes")
    shown = examples()
    assert len(shown) == 3
    for command, answer in shown:
        words = command.replace("mobileprep ", f"{sys.executable} -m mobileprep ", 1)
        words = command if command.startswith("printf") else words
        done = subprocess.run(words, shell=True, capture_output=True, check=False, text=True)
        found = without_digits(done.stderr + done.stdout)
        expected = without_digits(answer)
        assert is_answer(expected, found), f"{command}\n{found}"
