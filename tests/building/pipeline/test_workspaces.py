"""Which work directories are left behind by killed builds."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mobileprep.building.pipeline.output import sweep, workspace_name


def age(path: Path, days: float) -> None:
    """Set the times back, as if nothing had changed for so long."""
    then = time.time() - days * 24 * 3600
    for each in [*path.iterdir(), path] if path.is_dir() else [path]:
        os.utime(each, (then, then))


def test_names_are_new_each_time() -> None:
    assert len({workspace_name() for _ in range(100)}) == 100


def test_work_directories_are_removed_after_a_day_without_changes(tmp_path: Path) -> None:
    folder = tmp_path / workspace_name()
    folder.mkdir()
    (folder / "graph.pb").write_bytes(b"half")
    assert sweep(tmp_path) == 0
    age(folder, days=2)
    (folder / "graph.pb").write_bytes(b"still being written")
    assert sweep(tmp_path) == 0
    age(folder, days=2)
    assert sweep(tmp_path) == 1
    assert not list(tmp_path.iterdir())


def test_a_link_is_removed_and_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "tmp"
    outside.mkdir()
    (outside / "kept").write_bytes(b"")
    folder.mkdir()
    (folder / "link").symlink_to(outside)
    then = time.time() - 2 * 24 * 3600
    os.utime(folder / "link", (then, then), follow_symlinks=False)
    assert sweep(folder) == 1
    assert not list(folder.iterdir())
    assert (outside / "kept").exists()


def test_a_missing_folder_has_no_work_directories(tmp_path: Path) -> None:
    assert sweep(tmp_path / "missing") == 0


def test_several_may_sweep_at_once(tmp_path: Path) -> None:
    for _ in range(50):
        folder = tmp_path / workspace_name()
        folder.mkdir()
        (folder / "a").write_bytes(b"")
        age(folder, days=2)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(sweep, [tmp_path] * 8))
    assert not list(tmp_path.iterdir())


def test_a_time_ahead_of_the_clock_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    age(tmp_path / "left", days=-2)
    assert sweep(tmp_path) == 1
