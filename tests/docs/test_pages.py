"""Examples, links, and navigation of the documentation pages."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import DOCS, PAGES, ROOT, console_examples, copy_recipes, page_id, run_page
from tests.docs.setups import SETUPS
from tools import make_command_line_page

MAX_WORDS = 1600
# Generated pages, and pages of tables.
LONG = {"recipe", "transforms", "ops", "command-line", "error-codes", "litert", "benchmarks"}
LONG |= {"faithfulness"}
# GitHub and the site make anchors of headings in this way.
_PUNCTUATION = re.compile(r"[^\w\- ]")


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if console_examples(p)], ids=page_id)
def test_commands_print_the_output_on_the_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    copy_recipes(page)
    SETUPS.get(page_id(page), lambda: None)()
    assert run_page(page, tmp_path / "bin") == len(console_examples(page))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_have_targets(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" in target:
            continue
        path = Path(posixpath.normpath(page.parent / target)) if target else page
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            assert anchor in _anchors(path), f"{target}#{anchor}"


@pytest.mark.parametrize("page", [p for p in PAGES if DOCS in p.parents], ids=page_id)
def test_pages_are_short(page: Path) -> None:
    if page.stem not in LONG or page.parent.name == "tutorial":
        assert len(page.read_text("utf-8").split()) <= MAX_WORDS


def test_every_page_is_in_the_navigation() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    listed = set(re.findall(r"'([\w/.-]+\.md)'", str(navigation)))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} <= listed


def test_command_line_page_is_current() -> None:
    text = make_command_line_page.PAGE.read_text("utf-8")
    assert text == make_command_line_page.render(text), "run tools/make_command_line_page.py"


def test_site_builds_without_warnings(tmp_path: Path) -> None:
    mkdocs = pytest.importorskip("mkdocs.commands.build", reason="mkdocs is not installed")
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True)
    mkdocs.build(config)
    assert (tmp_path / "site" / "index.html").is_file()


def _anchors(page: Path) -> set[str]:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    titles = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).replace("`", "") for title in titles]
    return {_PUNCTUATION.sub("", title.lower()).replace(" ", "-") for title in titles}
