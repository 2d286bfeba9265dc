"""Names for first recipes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mobileprep.building.first_recipe import recipe_name


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


def name(model: str, recipe: str = "recipe.yaml") -> str:
    return recipe_name(Path(model), Path(recipe))


def recipe(path: str, named: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(f"version: 1\nname: {named}\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("digits.pb", "digits"),
        ("digits.tf.pb", "digits"),
        ("inception_v3_2016_08_28_frozen.pb", "inception_v3_2016_08_28_frozen"),
        # Names that exporters give to every model tell nothing: the folder's is taken.
        ("faces/saved_model.pb", "faces"),
        ("faces/frozen_inference_graph.pb", "faces"),
        ("faces/model.ckpt-1000.meta", "faces"),
        ("faces/export/7", "faces"),
        # What a recipe's name may not have becomes a hyphen, and none is at an end.
        ("große Katzen!.pb", "gro-e-Katzen"),
        ("x" * 100 + ".pb", "x" * 80),
    ],
)
def test_name_is_derived_from_the_model(model: str, expected: str) -> None:
    assert name(model) == expected


def test_a_model_that_no_part_of_its_path_names_keeps_its_own() -> None:
    assert recipe_name(Path("/model.pb"), Path("recipe.yaml")) == "model"


@pytest.mark.parametrize("path", ["other.yaml", "other.yml", "a/other.yaml", "a/b/other.yaml"])
def test_names_of_neighbor_recipes_are_avoided(path: str) -> None:
    recipe(path, "digits")
    assert name("digits.pb") == "digits-2"
    recipe("two.yaml", "'digits-2'")
    assert name("digits.pb") == "digits-3"


@pytest.mark.parametrize("path", ["a/b/c/other.yaml", "notes.txt", ".hidden/other.yaml"])
def test_names_further_off_and_in_other_files_are_free(path: str) -> None:
    recipe(path, "digits")
    assert name("digits.pb") == "digits"


def test_the_folder_of_the_new_recipe_counts() -> None:
    recipe("../elsewhere/other.yaml", "digits")
    assert name("digits.pb", "../elsewhere/recipe.yaml") == "digits-2"


def test_name_gets_a_parent_before_a_number() -> None:
    recipe("other.yaml", "faces")
    assert name("faces/frozen_graph.pb") == "faces-frozen_graph"
    recipe("more.yaml", "faces-frozen_graph")
    assert name("faces/frozen_graph.pb") == "faces-2"
