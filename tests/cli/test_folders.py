"""Folders in place of recipes, and every recipe below one."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def copy(digits: Path, *places: str) -> None:
    """Recipes beside the first, each with a name of its own."""
    for place in places:
        shutil.copytree(digits.parent, place)
        recipe = Path(place) / "recipe.yaml"
        name = place.replace("/", "-").replace(".", "")
        recipe.write_text(recipe.read_text().replace("name: digits", f"name: {name}"))


def names(run: Run, *arguments: object) -> list[str]:
    """The files of the recipes that ``validate`` finds."""
    told = run("validate", "--json", *arguments)
    assert told.code == 0, told.err
    return [recipe["file"] for recipe in json.loads(told.out)]


def test_a_folder_means_its_recipe_in_every_verb(built: Path, run: Run) -> None:
    for verb in ("validate", "plan", "build", "report", "clean"):
        told = run(verb, "digits")
        assert told.code == 0, told.err
    assert not any(Path("out").rglob("*.pb"))


def test_the_current_folder_is_one_too(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(digits.parent)
    assert names(run, ".") == ["recipe.yaml"]


def test_every_recipe_below_is_found_sorted(digits: Path, run: Run) -> None:
    copy(digits, "b/deep/er", "a", "b/.hidden/c", ".git/d", "out/e")
    assert names(run, "-r", ".") == [
        "a/recipe.yaml",
        "b/deep/er/recipe.yaml",
        "digits/recipe.yaml",
    ]
    assert names(run, "--recursive", "b", "digits/recipe.yaml") == [
        "b/deep/er/recipe.yaml",
        "digits/recipe.yaml",
    ]


def test_the_folder_of_outputs_is_the_one_that_is_named(digits: Path, run: Run) -> None:
    copy(digits, "left/a")
    told = run("plan", "-r", ".", "--out", "left", "--json")
    assert {step["task"].split("/")[0] for step in json.loads(told.out)} == {"digits"}


def test_a_recipe_named_twice_is_taken_once(digits: Path, run: Run) -> None:
    assert names(run, "-r", ".", "digits", digits) == ["digits/recipe.yaml"]


def test_links_to_folders_are_not_followed(digits: Path, run: Run) -> None:
    (digits.parent / "round").symlink_to(".")
    assert names(run, "-r", ".") == ["digits/recipe.yaml"]


@pytest.mark.parametrize(
    ("beside", "hint"),
    [
        ([], "mobileprep init"),
        (["empty/other.yaml", "empty/z.yml"], "name the file: empty/other.yaml, empty/z.yml"),
        (["empty/a/recipe.yaml"], "'-r' takes those below it, such as empty/a/recipe.yaml"),
    ],
)
def test_a_folder_without_a_recipe_is_told_with_the_mend(
    digits: Path, run: Run, beside: list[str], hint: str
) -> None:
    Path("empty").mkdir()
    for name in beside:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("")
    told = run("build", "empty")
    assert told.code == 2
    assert "empty: the folder has no recipe.yaml" in told.err
    assert hint in told.err


def test_no_recipe_below_is_told(digits: Path, run: Run) -> None:
    Path("empty").mkdir()
    told = run("build", "-r", "digits", "empty")
    assert told.code == 2
    assert "empty: neither the folder nor any below it has a recipe.yaml" in told.err


def test_a_folder_that_cannot_be_listed_is_told(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("data"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    told = run("validate", "-r", "digits")
    assert told.code == 4
    assert "digits/data: cannot be read: Permission denied" in told.err


def test_an_empty_name_is_not_the_current_folder(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(digits.parent)
    for flags in ([], ["-r"]):
        told = run("build", *flags, "")
        assert (told.code, "an empty name is not a recipe" in told.err) == (2, True)
    assert not Path("out").exists()


def test_recipes_of_one_name_are_refused(digits: Path, run: Run) -> None:
    shutil.copytree(digits.parent, "again")
    told = run("build", "-r", ".")
    assert told.code == 2
    assert "again/recipe.yaml" in told.err
    assert "digits/recipe.yaml" in told.err


def test_a_stale_report_names_the_command_with_its_flags(digits: Path, run: Run) -> None:
    assert "run 'mobileprep build -r .' first" in run("report", "-r", ".").err
