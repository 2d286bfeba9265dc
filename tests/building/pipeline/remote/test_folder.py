"""A store in a shared folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mobileprep.building.pipeline.remote.guarded import Remote, open_remote
from mobileprep.building.pipeline.remote.settings import RemoteSettings
from mobileprep.core.files import sha256_bytes

DATA = b"abc" * 1000
KEY = sha256_bytes(DATA)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "a share").mkdir()
    return tmp_path / "a share"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").write_bytes(DATA)
    return tmp_path / "source"


def remote_in(folder: Path) -> Remote:
    remote = open_remote(RemoteSettings(folder.as_uri()))
    assert remote is not None
    return remote


def test_uploaded_entry_is_downloaded(shared: Path, source: Path, tmp_path: Path) -> None:
    remote, target = remote_in(shared), tmp_path / "target"
    assert not remote.has("cas", KEY)
    assert not remote.fetch("cas", KEY, target, limit=9999)
    assert remote.send("cas", KEY, source)
    assert remote.has("cas", KEY)
    assert remote.fetch("cas", KEY, target, limit=9999)
    assert target.read_bytes() == DATA
    assert not remote.fetch("cas", KEY, target, limit=2999)
    assert [p.name for p in (shared / "cas").iterdir()] == [KEY]


def test_wrong_bytes_are_refused_and_replaced(shared: Path, source: Path, tmp_path: Path) -> None:
    remote, target = remote_in(shared), tmp_path / "target"
    (shared / "cas").mkdir()
    (shared / "cas" / KEY).write_bytes(DATA[:-1] + b"x")
    assert not remote.fetch("cas", KEY, target, limit=9999)
    assert not target.exists()
    assert remote.send("cas", KEY, source)
    assert remote.fetch("cas", KEY, target, limit=9999)


def test_a_damaged_object_of_ours_leaves_nothing(shared: Path, source: Path) -> None:
    source.write_bytes(b"x")
    assert not remote_in(shared).send("cas", KEY, source)
    assert list((shared / "cas").iterdir()) == []


def test_special_file_does_not_block(shared: Path, tmp_path: Path) -> None:
    (shared / "cas").mkdir()
    os.mkfifo(shared / "cas" / KEY)
    (shared / "ac" / KEY).mkdir(parents=True)
    remote = remote_in(shared)
    assert not remote.fetch("cas", KEY, tmp_path / "target", limit=9999)
    assert not remote.fetch("ac", KEY, tmp_path / "target", limit=9999)


def _as_a_folder(entry: Path) -> None:
    entry.mkdir()


def _as_a_loop(entry: Path) -> None:
    entry.symlink_to(entry)


@pytest.mark.parametrize("spoil", [_as_a_folder, _as_a_loop, os.mkfifo])
def test_one_entry_that_cannot_be_read_costs_no_other(shared: Path, tmp_path: Path, spoil) -> None:
    (shared / "ac").mkdir()
    spoil(shared / "ac" / KEY)
    (shared / "cas").mkdir()
    (shared / "cas" / KEY).write_bytes(DATA)
    remote = remote_in(shared)
    assert not remote.fetch("ac", KEY, tmp_path / "record", limit=9999)
    assert remote.fetch("cas", KEY, tmp_path / "target", limit=9999)
    assert all("has an entry that cannot be read: " in text for text in remote.warnings)


def test_unmounted_share_is_reported_once(tmp_path: Path, source: Path) -> None:
    remote = remote_in(tmp_path / "none")
    for _ in range(3):
        assert not remote.send("ac", KEY, source)
        assert not remote.fetch("cas", KEY, tmp_path / "target", limit=9999)
    [warning] = remote.warnings
    assert warning.startswith(f"the remote store {(tmp_path / 'none').as_uri()} cannot be read: No")
    assert warning.endswith("; building without it")
    assert not (tmp_path / "none").exists()
