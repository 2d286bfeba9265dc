"""``docs/report.md``: its commands, its links, and the parts of the page that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.pages import DOCS, check_examples

PAGE = DOCS / "report.md"
PROGRAM = DOCS.parent / "web" / "report" / "src" / "main.js"


@pytest.mark.slow
@pytest.mark.usefixtures("digits")
def test_every_command_answers_as_the_page_says(tmp_path: Path) -> None:
    check_examples(PAGE, tmp_path / "bin", least=2)


def test_it_names_every_part_in_the_order_of_the_page() -> None:
    titles = re.search(r"const TITLES = {(.*?)}", PROGRAM.read_text(), re.DOTALL)
    assert titles is not None
    parts = re.findall(r': "(\w+)"', titles[1])
    told = re.findall(r"^\| (\w+) \|", PAGE.read_text(), re.MULTILINE)
    assert told[0] == "part"
    assert told[1:] == parts


def test_its_links_and_pictures_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)[)#]", PAGE.read_text()):
        assert (DOCS / target).exists(), target
