"""Atomic file writes."""

from __future__ import annotations

import errno
import os
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mobileprep.core.files import (
    atomic_writer,
    file_inside,
    inside,
    place,
    read_blocks,
    read_bytes,
    sha256_bytes,
    sha256_file,
    write_bytes,
    write_new,
    write_text,
)
from mobileprep.core.paths import is_stdout, output_path
from mobileprep.errors import ArtifactError, CorruptFileError


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "model.pb"
    target.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic_writer(target) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_file_appears_only_when_complete(tmp_path: Path) -> None:
    target = tmp_path / "new" / "model.pb"
    with atomic_writer(target) as stream:
        stream.write(b"x")
        assert not target.exists()
    assert target.read_bytes() == b"x"


@pytest.mark.parametrize("kind", ["a file", "a link to nothing"])
def test_file_in_place_of_a_directory_is_an_error(tmp_path: Path, kind: str) -> None:
    obstacle = tmp_path / "phone"
    obstacle.write_bytes(b"") if kind == "a file" else obstacle.symlink_to("nothing")
    for name in ("model.pb", "headers/ops.h"):
        with pytest.raises(ArtifactError) as error:
            write_bytes(obstacle / name, b"x", follow=False)
        assert error.value.where == str(obstacle / name)
        assert error.value.message == f"cannot be written: {obstacle} is not a directory"
        assert error.value.hint == "remove it, or write elsewhere"


def test_chunks_are_written_in_order(tmp_path: Path) -> None:
    write_bytes(tmp_path / "f", [b"ab", memoryview(b"cd")])
    assert (tmp_path / "f").read_bytes() == b"abcd"


def test_files_respect_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text(tmp_path / "f", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640


def test_concurrent_writes_respect_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: write_text(tmp_path / f"d{i}" / "f", "x"), range(400)))
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(old)
    for path in tmp_path.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640)


def test_concurrent_writes_of_one_file_are_atomic(tmp_path: Path) -> None:
    contents = [str(i) * 50_000 for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_text(tmp_path / "f", text), contents * 10))
    assert (tmp_path / "f").read_text() in contents
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_longest_file_name_can_be_written(tmp_path: Path) -> None:
    write_text(tmp_path / ("x" * 255), "x")
    with pytest.raises(ArtifactError, match="too long"):
        write_text(tmp_path / ("x" * 256), "x")


def test_full_disk_is_an_error_and_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "model.pb"
    target.write_bytes(b"old")
    with pytest.raises(ArtifactError, match="No space left") as error, atomic_writer(target) as s:
        s.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert error.value.where == str(target)
    assert "space" in error.value.hint
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_directory_in_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f" / "below").mkdir(parents=True)
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_text(tmp_path / "f", "x")
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_failed_mkdir_is_an_artifact_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_text(tmp_path / "file" / "below", "x")


def test_copy_is_independent_of_its_source(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_text("one")
    place(source, tmp_path / "b")
    source.write_text("two")
    assert (tmp_path / "b").read_text() == "one"


def test_missing_source_keeps_the_old_copy(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("before")
    with pytest.raises(CorruptFileError, match="cannot be read") as error:
        place(tmp_path / "a", tmp_path / "b")
    assert error.value.where == str(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    assert (tmp_path / "b").read_text() == "before"


def test_blocks_are_read_into_the_same_buffer(tmp_path: Path) -> None:
    data = bytes(1 << 20) + b"x" * (1 << 20) + b"y" * (256 << 10)
    (tmp_path / "a").write_bytes(data)
    blocks = [(bytes(block), block) for block in read_blocks(tmp_path / "a")]
    assert b"".join(copy for copy, _ in blocks) == data
    assert [len(copy) for copy, _ in blocks] == [1 << 20, 1 << 20, 256 << 10]
    last = (1 << 20) - (256 << 10)
    assert all(bytes(block[:1]) == b"y" for _, block in blocks)
    assert blocks[0][1][-last:] == b"x" * last


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/../../x", ".."])
def test_paths_outside_the_directory_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArtifactError, match="leads out"):
        inside(tmp_path / "out", name)


def test_symlink_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "link").symlink_to(tmp_path)
    with pytest.raises(ArtifactError, match="leads out of the folder by a link") as error:
        inside(tmp_path / "out", "link/x")
    assert "remove the link" in error.value.hint


def test_paths_inside_the_directory_are_allowed(tmp_path: Path) -> None:
    assert inside(tmp_path, "a/../b") == (tmp_path / "b").resolve()


def test_file_and_bytes_digests_agree(tmp_path: Path) -> None:
    data = b"x" * (3 << 20)
    (tmp_path / "f").write_bytes(data)
    assert sha256_file(tmp_path / "f") == sha256_bytes(data)


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="No such file"):
        sha256_file(tmp_path / "none")
    with pytest.raises(CorruptFileError, match="No such file"):
        read_bytes(tmp_path / "none")


def test_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    assert read_bytes(tmp_path / "f", limit=5) == b"12345"
    with pytest.raises(CorruptFileError, match="at most 4"):
        read_bytes(tmp_path / "f", limit=4)


def test_symlink_is_followed_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("old")
    (tmp_path / "one").symlink_to("real/file")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    write_text(tmp_path / "two", "new")
    assert (tmp_path / "two").is_symlink()
    assert (tmp_path / "one").is_symlink()
    assert (tmp_path / "real" / "file").read_text() == "new"
    assert [p.name for p in (tmp_path / "real").iterdir()] == ["file"]


def test_symlink_is_replaced_without_follow(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "new", follow=False)
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "old"


def test_hard_link_keeps_its_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    write_text(tmp_path / "b", "new")
    assert (tmp_path / "a").read_text() == "old"


def test_device_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(os.devnull)
    for path in (Path(os.devnull), tmp_path / "link"):
        write_text(path, "x")
        assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)
    assert (tmp_path / "link").is_symlink()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only on Linux")
def test_full_device_is_an_error_and_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="No space left"):
        write_text(Path("/dev/full"), "x")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


def test_fifo_receives_the_bytes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit((tmp_path / "fifo").read_bytes)
        write_text(tmp_path / "fifo", "x" * 200_000)
        assert read.result(timeout=30) == b"x" * 200_000
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "link"])
def test_stdout_receives_the_bytes(
    name: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    (tmp_path / "link").symlink_to("/dev/stdout")
    path = output_path(str(tmp_path / name) if name == "link" else name)
    assert is_stdout(path)
    with atomic_writer(path) as stream:
        stream.write(b"\0whole")
        assert capfdbinary.readouterr().out == b""
    assert capfdbinary.readouterr().out == b"\0whole"


def test_failed_write_streams_nothing(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(KeyboardInterrupt), atomic_writer(output_path("-")) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert capfdbinary.readouterr().out == b""


def test_closed_stdout_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    with pytest.raises(ArtifactError, match="closed"):
        write_text(output_path("-"), "x")


def test_file_can_be_named_minus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_text(output_path("./-"), "x")
    assert (tmp_path / "-").read_text() == "x"


def test_broken_symlinks_are_errors(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("none")
    with pytest.raises(ArtifactError, match="a link to none, which does not exist"):
        write_text(tmp_path / "dangling", "x")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ArtifactError, match="circle"):
        write_text(tmp_path / "a", "x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b", "dangling"]


@pytest.mark.parametrize("name", [".", "..", "/"])
def test_directory_as_output_is_an_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArtifactError, match="folder"):
        write_text(Path(name), "x")
    for text in (name, "new/", "new/.."):
        with pytest.raises(ArtifactError, match="folder"):
            output_path(text)
    with pytest.raises(ArtifactError, match="no name"):
        output_path("")
    assert not list(tmp_path.iterdir())


def test_sockets_are_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for follow in (True, False):
            with pytest.raises(ArtifactError, match="socket"):
                write_text(Path("socket"), "x", follow=follow)


def test_too_long_directory_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="too long"):
        write_text(tmp_path / ("x" * 300) / "y", "x")


def test_symlink_loop_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ArtifactError, match="cannot be"):
        write_text(inside(tmp_path / "a", "x") / "y", "x")


def test_last_path_component_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "down").mkdir()
    (tmp_path / "other").symlink_to("down")
    assert file_inside(tmp_path, "link") == tmp_path.resolve() / "link"
    assert file_inside(tmp_path, "down/x") == tmp_path.resolve() / "down" / "x"
    for name in ("other/x", "../x", "/etc/passwd", "", "down/.."):
        with pytest.raises(ArtifactError):
            file_inside(tmp_path, name)


def test_endless_device_is_refused_at_the_limit() -> None:
    with pytest.raises(CorruptFileError, match="longer than the 5 bytes"):
        read_bytes(Path("/dev/zero"), limit=5)
    assert read_bytes(Path("/dev/null"), limit=5) == b""


@pytest.mark.parametrize("character", ["a", "\u00e9", "\u6a21", "\U0001f4f1"])
def test_longest_unicode_file_name_can_be_written(tmp_path: Path, character: str) -> None:
    path = tmp_path / (character * (255 // len(character.encode())))
    write_bytes(path, b"whole")
    write_new(str(path), [b"again"])
    assert path.read_bytes() == b"again"
    assert [*tmp_path.iterdir()] == [path]
