"""Why a target's folder is not as its stages left it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.building.pipeline.publish import MANIFEST, Changes, folder_reasons
from mobileprep.building.plan.fingerprints import digest_text
from mobileprep.core.files import sha256_bytes

NEW = sha256_bytes(b"new")
EXPECTED = {
    "model.pb": NEW,
    "headers/a.h": NEW,
    "headers/b.h": NEW,
    MANIFEST: sha256_bytes(b"manifest"),
}


INPUTS = {"tool": "t", "recipe": "r", "target": "t", "settings": {}, "sources": {}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "phone"
    folder.mkdir()
    return folder


def reasons(folder: Path, *write: str, remove: tuple[str, ...] = ()) -> list[str]:
    return folder_reasons(Changes(folder, write, remove, b"manifest"), EXPECTED)


def digests(found: bytes) -> str:
    return f"its sha256 is {digest_text(sha256_bytes(found))}, expected {digest_text(NEW)}"


def test_a_folder_that_is_not_there_is_one_reason(tmp_path: Path) -> None:
    away = tmp_path / "away"
    assert reasons(away, "model.pb", MANIFEST) == [f"{away} does not exist"]
    assert reasons(away) == []


def test_a_missing_file_is_a_reason_and_the_manifest_with_it_none(folder: Path) -> None:
    found = reasons(folder, "model.pb", MANIFEST)
    assert found == [f"{folder / 'model.pb'} is missing"]


def test_a_manifest_alone_is_a_reason(folder: Path) -> None:
    assert reasons(folder, MANIFEST) == [f"{folder / MANIFEST} is missing"]


def test_a_folder_in_a_file_s_place(folder: Path) -> None:
    (folder / "model.pb").mkdir()
    found = reasons(folder, "model.pb", MANIFEST)
    assert found == [f"{folder / 'model.pb'} is not a regular file"]


@pytest.mark.parametrize("leads_to", ["../elsewhere", "nothing", "model.copy", "model.pb"])
def test_symlink_is_reported_by_its_own_name(folder: Path, leads_to: str) -> None:
    (folder.parent / "elsewhere").write_bytes(b"new")
    (folder / "model.copy").write_bytes(b"new")
    (folder / "model.pb").symlink_to(leads_to)
    assert reasons(folder, "model.pb", MANIFEST) == [f"{folder / 'model.pb'} is a link"]


def test_a_manifest_that_does_not_fit_its_files(folder: Path) -> None:
    files = {"model.pb": {"sha256": "0" * 64}}
    (folder / MANIFEST).write_text(json.dumps({**INPUTS, "files": files}))
    (folder / "model.pb").write_bytes(b"new")
    (found,) = reasons(folder, "model.pb", MANIFEST)
    what, is_and_was = f"is not what {MANIFEST} says", f"{digest_text(NEW)}, and not 000000000000"
    assert found == f"{folder / 'model.pb'} {what}: its sha256 is {is_and_was}"


def test_file_in_place_of_a_directory_is_reported_once(folder: Path) -> None:
    (folder / "headers").write_bytes(b"")
    assert reasons(folder, "headers/a.h", "headers/b.h", MANIFEST) == [
        f"{folder / 'headers'} is not a directory"
    ]
    (folder / "headers").unlink()
    folder.rmdir()
    folder.write_bytes(b"")
    assert reasons(folder, "model.pb", MANIFEST) == [f"{folder} is not a directory"]
    below = folder / "phone"
    assert reasons(below, "model.pb", MANIFEST) == [f"{folder} is not a directory"]


@pytest.mark.parametrize(
    ("noted", "fault"), [(b"old", "is of an earlier build"), (b"x", "was altered")]
)
def test_other_bytes_are_of_an_earlier_build_or_altered(
    folder: Path, noted: bytes, fault: str
) -> None:
    files = {"model.pb": {"sha256": sha256_bytes(noted)}}
    (folder / MANIFEST).write_text(json.dumps({**INPUTS, "files": files}))
    (folder / "model.pb").write_bytes(b"old")
    found = reasons(folder, "model.pb", MANIFEST)
    assert found == [f"{folder / 'model.pb'} {fault}: {digests(b'old')}"]


@pytest.mark.parametrize("manifest", ["", "[]", '{"files": []}', '{"files": {"model.pb": {}}}'])
def test_a_manifest_that_cannot_be_read_notes_nothing(folder: Path, manifest: str) -> None:
    (folder / MANIFEST).write_text(manifest)
    (folder / "model.pb").write_bytes(b"old")
    found = reasons(folder, "model.pb", MANIFEST)
    assert found == [f"{folder / 'model.pb'} was altered: {digests(b'old')}"]


def test_obsolete_file_is_a_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    (folder / "old.pb").write_bytes(b"")
    assert reasons(folder, remove=("old.pb",)) == [
        f"{Path('phone/old.pb')} remains from an earlier build"
    ]
