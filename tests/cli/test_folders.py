"""Directories as recipe arguments, and recursive search for recipes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run, replace_text


def copy(digits: Path, *places: str) -> None:
    """Copy the recipe to other directories, each with its own name."""
    for place in places:
        shutil.copytree(digits.parent, place)
        recipe = Path(place) / "recipe.yaml"
        name = place.replace("/", "-").replace(".", "")
        replace_text(recipe, "name: digits", f"name: {name}")


def names(run: Run, *arguments: object) -> list[str]:
    """The files of the recipes that ``validate`` finds."""
    result = run("validate", "--json", *arguments)
    assert result.code == 0, result.err
    return [recipe["file"] for recipe in json.loads(result.out)]


def test_verbs_accept_the_directory_of_a_recipe(built: Path, run: Run) -> None:
    for verb in ("validate", "plan", "build", "report", "clean"):
        result = run(verb, "digits")
        assert result.code == 0, result.err
    assert not any(Path("out").rglob("*.pb"))


def test_current_directory_is_accepted(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(digits.parent)
    assert names(run, ".") == ["recipe.yaml"]


def test_recursive_search_finds_recipes_in_order(digits: Path, run: Run) -> None:
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


def test_recursive_search_skips_the_output_directory(digits: Path, run: Run) -> None:
    copy(digits, "left/a")
    result = run("plan", "-r", ".", "--out", "left", "--json")
    assert {step["task"].split("/")[0] for step in json.loads(result.out)} == {"digits"}


def test_recipe_named_twice_is_read_once(digits: Path, run: Run) -> None:
    assert names(run, "-r", ".", "digits", digits) == ["digits/recipe.yaml"]


def test_symlinked_directories_are_skipped(digits: Path, run: Run) -> None:
    (digits.parent / "round").symlink_to(".")
    assert names(run, "-r", ".") == ["digits/recipe.yaml"]


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        ([], "mobileprep init"),
        (["empty/other.yaml", "empty/z.yml"], "name the file: empty/other.yaml, empty/z.yml"),
        (["empty/a/recipe.yaml"], "'-r' takes those below it, such as empty/a/recipe.yaml"),
    ],
)
def test_directory_without_a_recipe_is_refused_with_a_hint(
    digits: Path, run: Run, files: list[str], hint: str
) -> None:
    Path("empty").mkdir()
    for name in files:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("")
    result = run("build", "empty")
    assert result.code == 2
    assert "empty: the folder has no recipe.yaml" in result.err
    assert hint in result.err


def test_recursive_search_without_recipes_is_refused(digits: Path, run: Run) -> None:
    Path("empty").mkdir()
    result = run("build", "-r", "digits", "empty")
    assert result.code == 2
    assert "empty: neither the folder nor any below it has a recipe.yaml" in result.err


def test_unreadable_directory_is_reported(
    digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("data"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    result = run("validate", "-r", "digits")
    assert result.code == 4
    assert "digits/data: cannot be read: Permission denied" in result.err


def test_empty_name_is_refused(digits: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(digits.parent)
    for flags in ([], ["-r"]):
        result = run("build", *flags, "")
        assert (result.code, "an empty name is not a recipe" in result.err) == (2, True)
    assert not Path("out").exists()


def test_recipes_with_equal_names_are_refused(digits: Path, run: Run) -> None:
    shutil.copytree(digits.parent, "again")
    result = run("build", "-r", ".")
    assert result.code == 2
    assert "again/recipe.yaml" in result.err
    assert "digits/recipe.yaml" in result.err


def test_stale_report_names_the_build_command(digits: Path, run: Run) -> None:
    assert "run 'mobileprep build -r .' first" in run("report", "-r", ".").err
