"""Manifests read back, whoever wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mobileprep.building.pipeline.publish import manifest_folders, read_manifest
from mobileprep.core.files import sha256_bytes
from mobileprep.errors import CorruptFileError

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
