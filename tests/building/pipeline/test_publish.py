"""What brings a target's folder up to date."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mobileprep.building.pipeline.output import Output
from mobileprep.building.pipeline.publish import (
    MANIFEST,
    Changes,
    folder_reasons,
    manifest_folders,
    publish,
    read_manifest,
    unpublish,
)
from mobileprep.building.pipeline.runner import Built
from mobileprep.building.pipeline.store import Store
from mobileprep.building.plan.fingerprints import digest_text
from mobileprep.building.plan.spec import Records, TargetPlan, Upstream
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.package.spec import CompressRecord, ModelFacts, PackageRecord
from mobileprep.core.files import sha256_bytes
from mobileprep.errors import CorruptFileError


@pytest.fixture
def built_text(tmp_path: Path) -> tuple[Path, Callable[[], Changes]]:
    """The folder of a target with one file, and what publishes it again."""
    up = Upstream("r/a", "files/text")
    target = TargetPlan("r", "t", ("r/a",), (), (), {})
    freeze = FreezeRecord(0, 0, 0, 0, {}, 0, (), (), {})
    package = PackageRecord(ModelFacts("text", 0, 0, 0, 0), {}, ())
    records = Records([freeze, package, CompressRecord(0, "none")])
    output = Output(sha256_bytes(b"abc"), 3, text="abc")
    built = Built(target, {"text": output}, {"text": up}, records, {})

    def again() -> Changes:
        return publish(built, {}, Store(tmp_path / "store"), tmp_path / "out")

    again()
    return tmp_path / "out" / "r" / "t", again


def test_changes_are_true_where_there_is_something_to_do() -> None:
    assert not Changes(Path("a"), (), (), b"")
    assert Changes(Path("a"), ("new",), (), b"")
    assert Changes(Path("a"), (), ("old",), b"")


def test_partial_files_of_killed_builds_are_removed(
    built_text: tuple[Path, Callable[[], Changes]],
) -> None:
    folder, publish_again = built_text
    left = folder / ".text.0123456789abcdef"
    for path in (left, folder / ".notes.0123456789abcdef", folder / ".text.swp"):
        path.write_text("half")
    assert publish_again().remove == (left.name,)
    assert sorted(p.name for p in folder.iterdir()) == [
        ".notes.0123456789abcdef",
        ".text.swp",
        "manifest.json",
        "text",
    ]


def test_folders_within_folders_go_with_their_last_file(
    built_text: tuple[Path, Callable[[], Changes]],
) -> None:
    folder, publish_again = built_text
    names = ("java/org/app/A.java", "java/own/B.java", "text")

    def leave() -> None:
        for name in names[:2]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("")
        files = {name: {"sha256": sha256_bytes(b"abc")} for name in names}
        inputs = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps({**inputs, "files": files}))

    leave()
    (folder / "java/own/mine").write_text("")
    publish_again()
    left = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*"))
    assert left == ["java", "java/own", "java/own/mine", "manifest.json", "text"]
    (folder / "java/own/mine").unlink()
    leave()
    unpublish(folder)
    assert not folder.exists()


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


DIGEST = "0" * 64
WHOLE = {
    "tool": "mobileprep 1",
    "recipe": "r",
    "target": "t",
    "settings": {"a": 1},
    "sources": {"m.pb": {"sha256": DIGEST}},
    "files": {"r.pb": {"sha256": DIGEST}},
}


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "manifest.json").write_text(text)
    return folder


def test_a_manifest_is_read(tmp_path: Path) -> None:
    text = json.dumps(WHOLE)
    found = read_manifest(written(tmp_path, text))
    assert (found.tool, found.recipe, found.target) == ("mobileprep 1", "r", "t")
    assert found.settings == {"a": 1}
    assert (found.sources, found.files) == ({"m.pb": DIGEST}, {"r.pb": DIGEST})
    assert found.sha256 == sha256_bytes(text.encode())


@pytest.mark.parametrize(
    "change",
    [
        {"tool": 1},
        {"recipe": None},
        {"settings": []},
        {"sources": []},
        {"sources": {"m.pb": DIGEST}},
        {"files": {"r.pb": {"sha256": "0" * 63}}},
        {"files": {"r.pb": {"sha256": DIGEST + "\n"}}},
        {"files": {"r.pb": {"sha256": 0}}},
    ],
    ids=str,
)
def test_invalid_manifest_is_reported(tmp_path: Path, change: dict[str, object]) -> None:
    for text in (json.dumps({**WHOLE, **change}), "{", "[" * 9999, "null", "\xff"):
        with pytest.raises(CorruptFileError, match=r"manifest\.json: is not a manifest of a build"):
            read_manifest(written(tmp_path, text))


def test_incomplete_manifest_is_reported(tmp_path: Path) -> None:
    for name in WHOLE:
        text = json.dumps({k: v for k, v in WHOLE.items() if k != name})
        with pytest.raises(CorruptFileError, match="not a manifest of a build"):
            read_manifest(written(tmp_path, text))


def test_folders_are_found_below_one_and_not_below_each_other(tmp_path: Path) -> None:
    for name in ("b/t", "a/u", "a/t", "a/t/deeper"):
        written(tmp_path / name, "{}")
    below = [folder.relative_to(tmp_path).as_posix() for folder in manifest_folders(tmp_path)]
    assert below == ["a/t", "a/u", "b/t"]
    assert manifest_folders(tmp_path / "a" / "u") == [tmp_path / "a" / "u"]


def test_missing_manifest_is_reported(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(CorruptFileError):
            manifest_folders(folder)
