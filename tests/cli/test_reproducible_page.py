"""The commands of ``docs/reproducible.md``, and what it says of messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mobileprep.building.pipeline.folder_lock import Holder
from mobileprep.building.targets import BUILD_TYPE, BUILDER
from tests.cli.pages import DOCS, check_examples

PAGE = DOCS / "reproducible.md"


@pytest.mark.slow
@pytest.mark.usefixtures("digits")
def test_every_command_answers_as_the_page_says(tmp_path: Path) -> None:
    check_examples(PAGE, tmp_path / "bin")


def test_the_words_of_a_wait_and_the_uris_are_those_of_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    since, command = "2026-03-01 10:02:11 +0000", "mobileprep build ml"
    assert f"it is being worked on by {Holder(4711, 'build-3', '', '', '', since, command)}" in text
    assert f"`{BUILD_TYPE}`" in text
    assert f"`{BUILDER}`" in text


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert "://" in target or (DOCS / target).exists(), target
