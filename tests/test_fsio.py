"""Writing whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mobileprep.errors import ArtifactError, CorruptFileError
from mobileprep.fsio import (
    atomic_writer,
    inside,
    place,
    read_bytes,
    sha256_bytes,
    sha256_file,
    write_bytes,
    write_text,
)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "model.pb"
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic_writer(target) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_the_name_appears_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "new" / "model.pb"
    with atomic_writer(target) as stream:
        stream.write(b"x")
        assert not target.exists()
    assert target.read_bytes() == b"x"


def test_pieces_are_written_in_turn(tmp_path: Path) -> None:
    write_bytes(tmp_path / "f", [b"ab", memoryview(b"cd")])
    assert (tmp_path / "f").read_bytes() == b"abcd"


def test_files_get_the_rights_that_the_mask_gives(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "f", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


def test_threads_do_not_disturb_each_other_s_rights(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: write_text(tmp_path / f"d{i}" / "f", "x"), range(400)))
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(old)
    for path in tmp_path.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640)


def test_threads_that_write_one_file_leave_one_of_their_texts(tmp_path: Path) -> None:
    texts = [str(i) * 50_000 for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_text(tmp_path / "f", text), texts * 10))
    assert (tmp_path / "f").read_text() in texts
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    write_text(tmp_path / ("x" * 255), "x")
    with pytest.raises(ArtifactError, match="too long"):
        write_text(tmp_path / ("x" * 256), "x")


def test_a_full_disk_is_told_and_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "model.pb"
    target.write_bytes(b"old")
    with pytest.raises(ArtifactError, match="No space left") as caught, atomic_writer(target) as s:
        s.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.where == str(target)
    assert "space" in caught.value.hint
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "f" / "below").mkdir(parents=True)
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_text(tmp_path / "f", "x")
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_folder_that_cannot_be_made_is_an_artifact_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_text(tmp_path / "file" / "below", "x")


def test_a_copy_does_not_follow_its_source(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_text("one")
    place(source, tmp_path / "b")
    source.write_text("two")
    assert (tmp_path / "b").read_text() == "one"


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", ".."])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArtifactError, match="leads out"):
        inside(tmp_path / "out", name)


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path)
    with pytest.raises(ArtifactError, match="leads out"):
        inside(tmp_path / "out", "link/x")


def test_names_that_stay_are_allowed(tmp_path: Path) -> None:
    assert inside(tmp_path, "a/../b") == (tmp_path / "b").resolve()


def test_digests_agree(tmp_path: Path) -> None:
    data = b"x" * (3 << 20)
    (tmp_path / "f").write_bytes(data)
    assert sha256_file(tmp_path / "f") == sha256_bytes(data)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="No such file"):
        sha256_file(tmp_path / "none")
    with pytest.raises(CorruptFileError, match="No such file"):
        read_bytes(tmp_path / "none")


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    assert read_bytes(tmp_path / "f", limit=5) == b"12345"
    with pytest.raises(CorruptFileError, match="at most 4"):
        read_bytes(tmp_path / "f", limit=4)


def test_a_device_that_never_ends_is_refused_at_the_limit() -> None:
    with pytest.raises(CorruptFileError, match="longer than the 5 bytes"):
        read_bytes(Path("/dev/zero"), limit=5)
    assert read_bytes(Path("/dev/null"), limit=5) == b""
