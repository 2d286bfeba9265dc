"""Folders beside their manifests and beside what a rebuild gives, from Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from mobileprep.building.verify import manifests, verify, verify_builds, verify_files
from mobileprep.errors import CorruptFileError, UsageError
from mobileprep.recipe.load import load_recipe
from tests.cli.conftest import built, built_once

__all__ = ["built", "built_once"]

PHONE = Path("out/digits/phone")


def test_a_folder_is_rebuilt_only_where_it_can_be(built: Path) -> None:
    found = manifests(PHONE)
    ran: list[str] = []
    (folder,) = verify_builds(
        found, [load_recipe(built)], jobs=2, listen=lambda task, seconds: ran.append(task)
    )
    assert folder.is_same
    assert folder.is_rebuilt
    assert (folder.folder, folder.recipe, folder.target) == (PHONE, "digits", "phone")
    assert {file.status for file in folder.files} == {"same"}
    assert all(file.expected == file.found for file in folder.files)
    assert "digits/freeze" in ran
    assert not [task for task in ran if "download" in task]
    ran.clear()
    for changed, told in (
        ({"tool": "another 9"}, "it was built by 'another 9', and this is mobileprep "),
        ({"recipe": "other"}, "no recipe is named 'other'"),
        ({"target": "pho"}, "has no target 'pho'"),
        ({"sources": {}}, "'data/test.npz' was not a source of it"),
        ({"settings": {}}, "'abis' is "),
    ):
        other = {PHONE: structs.replace(found[PHONE], **changed)}
        (folder,) = verify_builds(
            other, [load_recipe(built)], listen=lambda task, seconds: ran.append(task)
        )
        assert told in folder.reasons[0]
        assert not folder.is_same
        assert not folder.is_rebuilt
        assert {file.status for file in folder.files} == {"same"}
    assert ran == []


def test_folders_are_verified_with_and_without_their_recipe(built: Path) -> None:
    with pytest.raises(UsageError, match="jobs is 0"):
        verify(PHONE, jobs=0)
    (folder,) = verify(PHONE)
    assert (folder.is_same, folder.is_rebuilt) == (True, False)
    (folder,) = verify(PHONE, built, jobs=2)
    assert (folder.is_same, folder.is_rebuilt) == (True, True)
    (PHONE / "digits.pb").write_bytes(b"other")
    for recipes in (None, [built]):
        (folder,) = verify(PHONE, recipes)
        assert not folder.is_same
        assert {file.name for file in folder.files if file.status == "differs"} == {"digits.pb"}


def test_removed_source_is_reported(built: Path) -> None:
    found = manifests(PHONE)[PHONE]
    more = structs.replace(found, sources={**found.sources, "old.npz": "0" * 64})
    (folder,) = verify_builds({PHONE: more}, [load_recipe(built)])
    assert folder.reasons == ("'old.npz' is no longer a source of it",)


@pytest.mark.usefixtures("built")
def test_json_lists_every_file(tmp_path: Path) -> None:
    (PHONE / "digits.pb").unlink()
    (folder,) = verify_files(manifests(PHONE))
    data = json.loads(json.dumps(folder.as_data()))
    assert (data["is_same"], data["is_rebuilt"], data["reasons"]) == (False, False, [])
    (missing,) = (f for f in data["files"] if f["status"] != "same")
    assert (missing["name"], missing["status"], missing["found"]) == ("digits.pb", "missing", None)
    with pytest.raises(CorruptFileError, match=r"has a manifest\.json"):
        manifests(tmp_path / "digits")
