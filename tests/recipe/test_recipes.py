"""The recipes of this repository are valid and complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.recipe.load import load_recipe
from mobileprep.recipe.presence import check_files

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*/recipe.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.parent.name)
def test_recipe_is_valid_and_its_files_exist(path):
    recipe = load_recipe(path, environ={})
    check_files(recipe)
    assert recipe.name == path.parent.name


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.parent.name)
def test_schema_in_the_first_line_exists(path):
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    assert (path.parent / first.removeprefix(prefix)).is_file()


def test_targets_of_digits_share_their_first_transforms():
    phone, download = load_recipe(ROOT / "recipes/digits/recipe.yaml", environ={}).targets
    assert phone.quantize.mode == "weights"
    assert download.quantize.mode == "round"
    # The shared transforms come first and run once.
    shared = len(phone.transforms) - 2
    assert phone.transforms[:shared] == download.transforms[:shared]
    assert [step.name for step in phone.transforms[shared:]] == [
        "quantize_weights",
        "sort_by_execution_order",
    ]
    assert [step.name for step in download.transforms[shared:]] == [
        "round_weights",
        "obfuscate_names",
        "sort_by_execution_order",
    ]
