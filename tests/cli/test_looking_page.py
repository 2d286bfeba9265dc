"""The commands of ``docs/looking.md``, run in order, and their answers compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.pages import DOCS, check_examples


@pytest.mark.slow
@pytest.mark.usefixtures("built")
def test_the_page_s_commands_answer_as_it_says(tmp_path: Path) -> None:
    check_examples(DOCS / "looking.md", tmp_path / "bin")
