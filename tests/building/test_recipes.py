"""Recipes before anything is planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.errors import UsageError
from mobileprep.recipe.load import check_names, load_recipe, target_folders
from mobileprep.recipe.model import Recipe

TEXT = """
version: 1
name: {name}
source: {{frozen: model.pb}}
inputs: {{x: {{}}}}
outputs: [y]
targets: {{phone: {{}}, watch: {{}}}}
"""


def recipe(folder: Path, name: str) -> Recipe:
    path = folder / f"{name}.yaml"
    path.write_text(TEXT.format(name=name))
    return load_recipe(path)


def test_two_recipes_of_one_name_are_refused_with_both_files(tmp_path: Path) -> None:
    first, other = recipe(tmp_path, "a"), recipe(tmp_path, "b")
    check_names([first, other])
    with pytest.raises(UsageError) as caught:
        check_names([first, other, first])
    assert caught.value.message == f"{first.file} and {first.file} are both named 'a'"


def test_the_folders_of_targets_lie_below_the_output_folder(tmp_path: Path) -> None:
    recipes = [recipe(tmp_path, "a"), recipe(tmp_path, "b")]
    out = tmp_path / "out"
    assert target_folders(recipes, out) == [
        out / "a" / "phone",
        out / "a" / "watch",
        out / "b" / "phone",
        out / "b" / "watch",
    ]
    assert target_folders(recipes, out, ["watch"]) == [out / "a" / "watch", out / "b" / "watch"]
