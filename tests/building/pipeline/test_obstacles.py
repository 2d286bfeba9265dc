"""Room for a file of a store."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mobileprep.building.pipeline.cache_files import clear_way


def test_what_stands_in_the_way_goes_and_what_is_replaced_stays(tmp_path: Path) -> None:
    top = tmp_path / "v2"
    (top / "cas").mkdir(parents=True)
    shard = top / "cas" / "ab"
    shard.write_text("no folder")
    clear_way(shard / "abc", top)
    assert not os.path.lexists(shard)
    (shard / "abc" / "inside").mkdir(parents=True)
    clear_way(shard / "abc", top)
    assert not (shard / "abc").exists()
    os.mkfifo(shard / "abc")
    clear_way(shard / "abc", top)
    assert not (shard / "abc").exists()
    (shard / "abc").write_text("kept until it is replaced")
    clear_way(shard / "abc", top)
    assert (shard / "abc").read_text()


def test_another_that_clears_the_same_way_at_once_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "v2" / "cas" / "ab" / "abc"
    path.mkdir(parents=True)
    remove = shutil.rmtree

    def slower_than_another(folder: Path) -> None:
        remove(folder)
        path.write_text("put there by another")
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", slower_than_another)
    clear_way(path, tmp_path / "v2")
    assert path.read_text() == "put there by another"


def test_what_has_the_name_of_the_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "v2").write_text("mine")
    with pytest.raises(NotADirectoryError):
        clear_way(tmp_path / "v2" / "cas" / "ab", tmp_path / "v2")
    assert (tmp_path / "v2").read_text() == "mine"
