"""What a build reads from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.pipeline.state import files_read, folders_read
from mobileprep.building.plan.planner import plan_recipes
from mobileprep.building.plan.spec import Plan
from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.model import Recipe

RECIPE = """
version: 1
name: r
source:
  saved_model: model
  sha256: {model/saved_model.pb: SHA}
inputs: {x: {}}
targets: {phone: {}}
outputs: [y]
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """A SavedModel with variables, and a recipe that extends another."""
    monkeypatch.chdir(tmp_path)
    for name in ("saved_model.pb", "variables/deep/index", "assets/words"):
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "base.yaml").write_text(RECIPE.replace("SHA", "0" * 64))
    (tmp_path / "recipe.yaml").write_text("extends: base.yaml\nname: mine\n")
    return load_recipe(tmp_path / "recipe.yaml", environ={})


def planned(recipe: Recipe) -> Plan:
    return plan_recipes([recipe])


def test_recipes_and_all_that_stages_read_are_files_of_a_build(
    recipe: Recipe, tmp_path: Path
) -> None:
    found = {p.absolute().relative_to(tmp_path) for p in files_read([recipe], planned(recipe))}
    assert set(map(str, found)) == {
        "recipe.yaml",
        "base.yaml",
        "model/saved_model.pb",
        "model/variables/deep/index",
        "model/assets/words",
    }


def test_overridden_recipe_is_an_input(recipe: Recipe, tmp_path: Path) -> None:
    base, own = tmp_path / "base.yaml", tmp_path / "recipe.yaml"
    own.write_text(f"extends: base.yaml\n{base.read_text()}")
    base.write_text("extends: first.yaml\n")
    (tmp_path / "first.yaml").write_text("name: r\n")
    found = load_recipe(own, environ={})
    names = {path.name for path in files_read([found], planned(found))}
    assert {"recipe.yaml", "base.yaml", "first.yaml"} <= names


def test_the_profile_of_a_device_is_read(recipe: Recipe, tmp_path: Path) -> None:
    own = tmp_path / "recipe.yaml"
    own.write_text(f"{own.read_text()}device: ours.yaml\n")
    (tmp_path / "ours.yaml").write_text("title: ours\ngflops: 2\nsource: measured\n")
    found = load_recipe(own, environ={})
    assert tmp_path / "ours.yaml" in files_read([found], planned(found))


def test_a_folder_counts_with_those_below_it(recipe: Recipe, tmp_path: Path) -> None:
    found = {p.absolute().relative_to(tmp_path) for p in folders_read(planned(recipe))}
    assert set(map(str, found)) == {
        "model",
        "model/variables",
        "model/variables/deep",
        "model/assets",
    }


def test_nothing_planned_reads_nothing() -> None:
    assert files_read([], Plan((), ())) == set()
    assert folders_read(Plan((), ())) == set()
