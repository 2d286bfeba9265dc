"""Recipes built from Python, and as tasks of doit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from doit.exceptions import InvalidDodoFile

from mobileprep import RecipeError, UsageError, build, load_recipe, recipe_tasks
from mobileprep.building.stages.package.run import compressed_size

ENCRYPTED = "protect: {encrypt: {key: env:DIGITS_KEY}}"
DIGITS = Path(__file__).resolve().parents[2] / "recipes" / "digits"


@pytest.fixture
def digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MOBILEPREP_CACHE", str(tmp_path / "store"))
    shutil.copytree(DIGITS, tmp_path / "recipes" / "digits")
    return tmp_path / "recipes" / "digits" / "recipe.yaml"


def test_build_returns_directories_and_runs_only_stale_stages(digits: Path) -> None:
    first = build(digits, "out")
    assert [str(t.folder) for t in first.targets] == ["out/digits/phone", "out/digits/download"]
    assert all(t.is_changed for t in first.targets)
    assert "digits/freeze" in first.ran
    phone = first.targets[0]
    listed = json.loads((phone.folder / "manifest.json").read_text(encoding="utf-8"))
    assert phone.report.model.bytes == (phone.folder / "digits.pb").stat().st_size
    assert "digits.pb" in listed["files"]
    again = build([load_recipe(digits)], Path("out"), targets=["phone"])
    assert [(t.folder, t.is_changed) for t in again.targets] == [(phone.folder, False)]
    assert again.ran == ()
    assert "digits/freeze" in build(digits, "out", targets=["phone"], force=True).ran


@pytest.mark.parametrize("target", ["", "artifact: text", "artifact: memmapped", ENCRYPTED])
def test_the_compressed_size_is_that_of_the_published_file(
    digits: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    if target == ENCRYPTED:
        pytest.importorskip("cryptography")
        monkeypatch.setenv("DIGITS_KEY", "07" * 32)
    line = "    quantize: weights\n"
    digits.write_text(digits.read_text().replace(line, f"{line}    {target}\n"))
    (phone,) = build(digits, targets=["phone"]).targets
    (model,) = [path for path in phone.folder.iterdir() if path.name.startswith("digits.")]
    assert phone.report.compressed.bytes == compressed_size([model.read_bytes()])


def test_invalid_build_is_refused_before_stages_run(digits: Path) -> None:
    for options, told in (
        ({"targets": ["phon"]}, "no recipe has a target 'phon'"),
        ({"jobs": 0}, "jobs is 0"),
    ):
        with pytest.raises(UsageError, match=told):
            build(digits, **options)
    with pytest.raises(UsageError, match="are both named 'digits'"):
        build([digits, load_recipe(digits)])
    digits.write_text(digits.read_text().replace("outputs:", "outptus:"))
    with pytest.raises(RecipeError, match="did you mean 'outputs'"):
        load_recipe(str(digits))
    assert not Path("out").exists()


def test_recipe_variables_can_be_set(digits: Path) -> None:
    digits.write_text(digits.read_text().replace("name: digits", "name: ${NAME}"))
    assert load_recipe(digits, settings={"NAME": "a"}, environ={"NAME": "b"}).name == "a"
    assert load_recipe(digits, environ={"NAME": "b"}).name == "b"


def test_tasks_are_of_one_recipe_or_of_all_below_a_folder(digits: Path) -> None:
    of_one = [task["name"] for task in recipe_tasks(digits)]
    assert of_one == [task["name"] for task in recipe_tasks("recipes", "out")]
    assert {"digits/phone", "digits/download"} <= set(of_one)
    with pytest.raises(InvalidDodoFile, match="store: is missing"):
        next(recipe_tasks("store"))
