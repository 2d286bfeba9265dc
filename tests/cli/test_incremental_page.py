"""The commands of ``docs/incremental.md``, and what it says of reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mobileprep.graph.files import APART
from tests.cli.pages import DOCS, check_examples

PAGE = DOCS / "incremental.md"


@pytest.mark.slow
@pytest.mark.usefixtures("digits")
def test_every_command_answers_as_the_page_says(tmp_path: Path) -> None:
    check_examples(PAGE, tmp_path / "bin")


def test_its_sizes_and_links_are_right() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert f"tensors of {APART >> 10} KiB or more" in text
    for target in re.findall(r"\]\(([^)#]+)[)#]", text):
        assert "://" in target or (DOCS / target).exists(), target
