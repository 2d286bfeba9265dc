"""The commands of ``docs/incremental.md``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.pages import DOCS, check_examples


@pytest.mark.usefixtures("digits")
def test_every_command_answers_as_the_page_says(tmp_path: Path) -> None:
    check_examples(DOCS / "incremental.md", tmp_path / "bin")
