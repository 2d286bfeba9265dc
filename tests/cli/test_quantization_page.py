"""The commands of ``docs/quantization.md``."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.cli.pages import DOCS, check_examples

PAGE = DOCS / "quantization.md"


@pytest.mark.slow
@pytest.mark.usefixtures("digits")
def test_every_command_answers_as_the_page_says(tmp_path: Path) -> None:
    shutil.copytree(DOCS.parent / "recipes" / "mnist", tmp_path / "recipes" / "mnist")
    check_examples(PAGE, tmp_path / "bin")


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert "://" in target or (DOCS / target).exists(), target
