"""The documentation as a site: its pages, its links, and the commands of its guides."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from mobileprep.cli.main import verb_names
from tests.cli.conftest import RECIPES
from tests.cli.pages import DOCS, check_examples

ROOT = DOCS.parent


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("page", ["start", "chapters", "migrating"])
def test_the_commands_of_a_guide_answer_as_it_says(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    name = "mnist" if page == "chapters" else "digits"
    shutil.copytree(RECIPES / name, tmp_path / name)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    for recipe in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL):
        Path("migrated.yaml").write_text(recipe)
    check_examples(DOCS / f"{page}.md", tmp_path / "bin")


def test_every_page_is_in_the_navigation() -> None:
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    named = set(re.findall(r"'([\w/.-]+\.md)'", str(nav)))
    missing = {path.name for path in DOCS.glob("*.md")} - named
    assert not missing, "give it a line in mkdocs.yml"


@pytest.mark.slow
def test_verbs_and_errors_have_pages_of_all() -> None:
    pages = tool("reference_pages").PAGES
    verbs, errors = pages["verbs.md"](), pages["errors.md"]()
    assert re.findall(r"^## (.*)$", verbs, re.MULTILINE) == verb_names()
    assert "| `--compare` `OLD` | tell what differs" in verbs
    assert "- the earlier build has none of these targets" in errors
    for code in (2, 3, 4, 5, 6, 7, 8, 9, 70):
        assert f"\n| {code} | [" in errors


def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    mkdocs = pytest.importorskip("mkdocs.commands.build", reason="mkdocs is not installed")
    pytest.importorskip("material", reason="mkdocs-material is not installed")
    from mkdocs.config import load_config

    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True)
    mkdocs.build(config)
    assert "Verbs and flags" in (tmp_path / "site" / "verbs.html").read_text(encoding="utf-8")
    assert "chapters.html" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
