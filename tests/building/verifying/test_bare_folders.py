"""Folders of targets that lack their manifests, among others and beside what users keep."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mobileprep.building.verify import bare_folders, manifests, verify
from mobileprep.recipe.load import load_recipe
from tests.cli.conftest import built, built_once

__all__ = ["built", "built_once"]

OUT = Path("out")
PHONE = OUT / "digits" / "phone"
BARE = [("out/digits/phone", "digits", "phone", "has no manifest.json")]


def told(out: Path, *recipes: Path) -> list[tuple[str, str, str, str]]:
    found = bare_folders(out, manifests(out), [load_recipe(path) for path in recipes])
    return sorted((str(one.folder), one.recipe, one.target, *one.reasons) for one in found)


def test_a_whole_folder_lacks_nothing(built: Path) -> None:
    assert told(OUT) == told(OUT, built) == told(PHONE, built) == []


def test_files_without_a_manifest_are_reported(built: Path) -> None:
    (PHONE / "manifest.json").unlink()
    assert told(OUT) == told(OUT, built) == told(OUT / "digits") == BARE
    assert told(OUT / "digits" / "download", built) == []
    (folder,) = (one for one in verify(OUT) if not one.is_same)
    assert (folder.folder, folder.reasons, folder.files) == (PHONE, ("has no manifest.json",), ())


def test_a_target_that_was_not_built_lacks_nothing(built: Path) -> None:
    shutil.rmtree(PHONE)
    assert told(OUT) == told(OUT, built) == told(OUT / "digits", built) == []
    PHONE.mkdir()
    (PHONE / "notes.txt").write_text("mine")
    assert told(OUT, built) == []
    assert [one.is_same for one in verify(OUT, built)] == [True]


def test_statement_of_a_removed_directory_is_reported(built: Path) -> None:
    shutil.rmtree(PHONE)
    PHONE.with_name("phone.provenance.json").write_text("{}")
    missing = [("out/digits/phone", "digits", "phone", "is missing")]
    assert told(OUT) == told(OUT, built) == missing


def test_page_without_targets_is_reported(built: Path) -> None:
    shutil.copytree(OUT, "more/out")
    for name in ("phone", "download"):
        (OUT / "digits" / name / "manifest.json").unlink()
    shutil.move("more/out/digits", OUT / "copy")
    assert [one[0] for one in told(OUT)] == ["out/digits/download", "out/digits/phone"]
    assert [one[3] for one in told(OUT, built)] == ["has no manifest.json"] * 2


@pytest.mark.parametrize("place", ["out/digits/notes", "out/kept", "out/digits/.hidden"])
def test_other_files_of_users_are_ignored(built: Path, place: str) -> None:
    Path(place).mkdir()
    (Path(place) / "notes.txt").write_text("mine")
    (OUT / "digits" / "phone.provenance.json").write_text("{}")
    assert told(OUT) == told(OUT, built) == []
    (Path(place) / "digits.pb").write_text("mine")
    assert (told(OUT) != []) == (place == "out/digits/notes")
    assert told(OUT, built) == []


def test_targets_of_several_models_lie_a_folder_deeper(built: Path) -> None:
    for name in ("wake", "words"):
        for target in ("phone", "download"):
            copy = OUT / "two" / name / target
            shutil.copytree(OUT / "digits" / target, copy)
            manifest = copy / "manifest.json"
            text = manifest.read_text().replace('"recipe": "digits"', '"recipe": "two"')
            manifest.write_text(text.replace(f'": "{target}"', f'": "{name}/{target}"'))
    assert told(OUT) == []
    (OUT / "two" / "words" / "phone" / "manifest.json").unlink()
    assert told(OUT) == [("out/two/words/phone", "two", "words/phone", "has no manifest.json")]
