"""The guide to a first recipe: its commands, and what it says they write."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from mobileprep.recipe.tree import SourceText, plain
from mobileprep.recipe.yaml_tree import parse_yaml
from tests.cli.conftest import RECIPES, Run, run

__all__ = ["run"]

GUIDE = Path(__file__).resolve().parents[1] / "docs" / "first-recipe.md"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found
    return found.group(1)


def test_the_guide_writes_the_recipe_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    for name in ("model", "data"):
        shutil.copytree(RECIPES / "digits" / name, tmp_path / name)
    for line in block("sh").splitlines():
        told = run(*line.removeprefix("mobileprep ").split())
        assert told.code == 0, told.err
    written = (tmp_path / "recipe.yaml").read_text()
    assert block("yaml") in written
    shown = plain(parse_yaml(SourceText("guide", GUIDE.parent, block("yaml"))))
    tree = plain(parse_yaml(SourceText("recipe", tmp_path, written)))
    assert {key: tree[key] for key in shown} == shown
    assert tree["validation"] == {"data": "data/test.npz", "labels": "label", "max_drop": 0.01}
    assert tree["check"]
    assert tree["targets"]["phone"]["quantize"] == "weights"
