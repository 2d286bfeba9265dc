"""The commands of ``docs/command-line.md``, run in order, and their answers compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.pages import DOCS, check_examples

PAGE = DOCS / "command-line.md"


@pytest.mark.slow
@pytest.mark.usefixtures("digits")
def test_every_command_answers_as_the_page_says(tmp_path: Path) -> None:
    check_examples(PAGE, tmp_path / "bin")


def test_the_kinds_of_errors_are_all_told() -> None:
    from mobileprep.cli._shared.failures import error_kind
    from mobileprep.errors import InternalError, MobileprepError

    for error in set(MobileprepError.__subclasses__()) - {InternalError}:
        assert f"`{error_kind(error())}`" in PAGE.read_text()
