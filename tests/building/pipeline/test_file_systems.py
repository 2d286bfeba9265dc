"""Which file systems are trusted to tell of every change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mobileprep.building.pipeline import file_index
from mobileprep.building.pipeline.file_index import FileSystems, Mount, read_mounts

pytestmark = pytest.mark.skipif(not hasattr(os, "makedev"), reason="no device numbers")

LINE = "36 27 {device} / {point} rw,relatime shared:1 master:2 - {kind} /dev/sda1 rw,a=b\n"


def pretend(patch: pytest.MonkeyPatch, folder: Path, *mounts: tuple[str, str, str]) -> FileSystems:
    """What is known where these are mounted: device, point, and kind of each."""
    table = folder / "mountinfo"
    lines = [LINE.format(device=d, point=p, kind=k) for d, p, k in mounts]
    table.write_text("".join(lines))
    patch.setattr(file_index, "_MOUNTINFO", table)
    return FileSystems()


@pytest.mark.parametrize(
    ("kind", "trusted"),
    [(k, True) for k in ("ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay")]
    + [(k, False) for k in ("vfat", "exfat", "msdos", "ntfs3", "fuseblk", "9p", "cifs", "smb3")]
    + [(k, False) for k in ("nfs", "nfs4", "fuse.sshfs", "fuse", "virtiofs", "vboxsf", "tmpfs")]
    + [(k, False) for k in ("ramfs", "proc", "squashfs", "ceph", "ocfs2", "unheard-of")],
)
def test_local_file_systems_with_true_times_are_trusted_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, trusted: bool
) -> None:
    found = pretend(monkeypatch, tmp_path, ("0:1", "/proc", "proc"), ("8:1", "/", kind))
    assert found.tell_changes("/model.pb", os.makedev(8, 1)) is trusted


def test_a_device_that_no_mount_names_is_that_of_the_nearest_mount_with_such_devices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path(os.path.realpath(tmp_path))
    for name in ("sub volume", "sub volumes"):
        (real / name).mkdir()
    mounts = (
        ("8:1", "/", "ext4"),
        ("0:40", str(real), "vfat"),
        ("0:41", str(real / "sub\\040volume"), "btrfs"),
    )
    found = pretend(monkeypatch, tmp_path, *mounts)
    assert found.tell_changes(str(real / "sub volume" / "file"), os.makedev(0, 99))
    assert not found.tell_changes(str(real / "sub volumes" / "file"), os.makedev(0, 98))
    assert not found.tell_changes("/elsewhere", os.makedev(0, 97))
    assert not found.tell_changes(str(real / "sub volume" / "file"), os.makedev(8, 96))


@pytest.mark.parametrize(("upper", "trusted"), [("tmpfs", False), ("nfs", False), ("xfs", True)])
def test_an_overlay_is_trusted_as_its_upper_layer_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upper: str, trusted: bool
) -> None:
    layer = Path(os.path.realpath(tmp_path)) / "upper layer"
    layer.mkdir()
    named = str(layer).replace(" ", "\\040")
    options = f"rw,lowerdir=/,upperdir={named},workdir=/work"
    table = tmp_path / "mountinfo"
    table.write_text(
        LINE.format(device="8:1", point="/", kind="ext4")
        + LINE.format(device="0:50", point=named, kind=upper)
        + f"37 27 0:51 / /seen rw - overlay overlay {options}\n"
    )
    monkeypatch.setattr(file_index, "_MOUNTINFO", table)
    assert FileSystems().tell_changes("/seen/file", os.makedev(0, 51)) is trusted
    assert FileSystems().tell_changes("/seen/file", os.makedev(0, 52)) is trusted
    layer.rmdir()  # as in a container, which does not see its own layers
    assert FileSystems().tell_changes("/seen/file", os.makedev(0, 51))


def test_a_link_counts_by_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path(os.path.realpath(tmp_path))
    (real / "volume").mkdir()
    (real / "volume" / "file").write_bytes(b"")
    (real / "link").symlink_to(real / "volume" / "file")
    mounts = (("8:1", "/", "ext4"), ("0:41", str(real / "volume"), "overlay"))
    found = pretend(monkeypatch, tmp_path, *mounts)
    assert found.tell_changes(str(real / "link"), os.makedev(0, 99))


def test_of_mounts_on_one_point_the_last_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = os.makedev(0, 99)
    found = pretend(monkeypatch, tmp_path, ("0:1", "/", "overlay"), ("0:2", "/", "vfat"))
    assert not found.tell_changes("/file", device)
    found = pretend(monkeypatch, tmp_path, ("0:1", "/", "vfat"), ("0:2", "/", "overlay"))
    assert found.tell_changes("/file", device)


def test_a_device_of_two_kinds_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = pretend(monkeypatch, tmp_path, ("8:1", "/a", "ext4"), ("8:1", "/b", "vfat"))
    assert not found.tell_changes("/a/file", os.makedev(8, 1))


def test_where_the_system_tells_no_mounts_nothing_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_index, "_MOUNTINFO", tmp_path / "missing")
    assert read_mounts() == []
    assert not FileSystems().tell_changes(str(tmp_path), tmp_path.stat().st_dev)


def test_lines_that_are_none_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    good = LINE.format(device="8:1", point="/a\\040b\\134", kind="ext4").encode()
    table.write_bytes(b"\n - \n1 2 x:y / / - ext4\n1 2 3 4\n1 2 8:2 / /m rw -\n\xff\n" + good)
    monkeypatch.setattr(file_index, "_MOUNTINFO", table)
    assert read_mounts() == [Mount(8, 1, "/a b\\", "ext4")]


def test_a_device_is_looked_up_once_and_a_new_one_in_the_mounts_of_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = pretend(monkeypatch, tmp_path, ("8:1", "/", "ext4"))
    assert found.tell_changes("/file", os.makedev(8, 1))
    pretend(monkeypatch, tmp_path, ("8:1", "/", "vfat"), ("8:2", "/new", "xfs"))
    assert found.tell_changes("/new/file", os.makedev(8, 2))
    assert found.tell_changes("/file", os.makedev(8, 1))


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="not Linux")
def test_the_mounts_of_this_machine_are_read() -> None:
    mounts = read_mounts()
    assert any(m.point == "/" for m in mounts)
    assert not FileSystems().tell_changes("/proc/self", Path("/proc/self").stat().st_dev)


@pytest.mark.parametrize(("kind", "at_once"), [("ext4", True), ("nfs4", False), ("fuse", False)])
def test_blocks_are_allocated_at_once_where_the_system_does_it_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, at_once: bool
) -> None:
    path = tmp_path / "model.pb"
    size = 5 << 20
    with path.open("wb") as stream:
        device = os.fstat(stream.fileno()).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        found = pretend(monkeypatch, tmp_path, (number, str(tmp_path), kind))
        found.reserve(stream.fileno(), str(path), size)
        assert os.fstat(stream.fileno()).st_size == (size if at_once else 0)
        stream.write(b"a" * size)
    assert path.read_bytes() == b"a" * size


def test_no_room_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.pb"
    with path.open("wb") as stream:
        device = os.fstat(stream.fileno()).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        found = pretend(monkeypatch, tmp_path, (number, str(tmp_path), "ext4"))
        with pytest.raises(OSError, match=r"[Nn]o space|too large"):
            found.reserve(stream.fileno(), str(path), 1 << 60)
