"""Asset files of a model between stages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mobileprep.building.stages.running import asset_folder, write_assets
from mobileprep.errors import ArtifactError
from mobileprep.formats.arrays import write_arrays
from tests.building.stages.jobs import assets


def test_asset_files_round_trip(tmp_path: Path) -> None:
    words, empty = tmp_path / "words.txt", tmp_path / "empty"
    words.write_bytes(b"yes\nno\n\0")
    empty.touch()
    path = tmp_path / "assets.npz"
    write_assets(path, {"more/words.txt": words, "none": empty})
    with asset_folder(path) as folder:
        paths = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
        assert sorted(paths) == ["more/words.txt", "none"]
        assert paths["more/words.txt"].read_bytes() == b"yes\nno\n\0"
    assert not folder.exists()


def test_directory_is_empty_without_assets(tmp_path: Path) -> None:
    with asset_folder(assets(tmp_path)) as folder:
        assert list(folder.iterdir()) == []


def test_asset_name_outside_of_the_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    write_arrays(path, {"../out": np.zeros(1, np.uint8)})
    with pytest.raises(ArtifactError, match="leads out"), asset_folder(path):
        pass
