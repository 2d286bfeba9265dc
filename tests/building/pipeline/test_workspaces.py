"""Which workspaces are left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mobileprep.building.pipeline import output
from mobileprep.building.pipeline.output import sweep, workspace_name

linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")
SOURCE = """
import sys, time
from pathlib import Path
from mobileprep.building.pipeline.output import workspace_name
folder = Path(sys.argv[1]) / workspace_name()
folder.mkdir()
(folder / "graph.pb").write_bytes(b"half")
print("ready", flush=True)
time.sleep(600)
"""


def worker(folder: Path) -> subprocess.Popen[str]:
    """A process that works in a workspace of the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", SOURCE, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def rest(path: Path, days: float) -> None:
    """As if nothing had changed for so long."""
    then = time.time() - days * 24 * 3600
    for each in [*path.iterdir(), path] if path.is_dir() else [path]:
        os.utime(each, (then, then))


def test_names_are_new_each_time() -> None:
    assert len({workspace_name() for _ in range(100)}) == 100


@linux
def test_workspaces_of_killed_processes_are_removed_and_others_kept(tmp_path: Path) -> None:
    (tmp_path / workspace_name()).mkdir()
    first, second = worker(tmp_path), worker(tmp_path)
    try:
        rest(next(tmp_path.glob(f"{second.pid}-*")), days=30)
        assert sweep(tmp_path) == 0
        end(first)
        assert sweep(tmp_path) == 1
        assert sorted(int(p.name.split("-")[0]) for p in tmp_path.iterdir()) == sorted(
            (os.getpid(), second.pid)
        )
    finally:
        end(first)
        end(second)
    assert sweep(tmp_path) == 1


@linux
def test_another_process_of_the_same_number_does_not_keep_a_workspace(tmp_path: Path) -> None:
    pid, system, started, chance = workspace_name().split("-")
    (tmp_path / f"{pid}-{system}-{int(started) - 1}-{chance}").mkdir()
    assert sweep(tmp_path) == 1


@linux
def test_names_tell_a_process_from_the_one_that_it_was_forked_from(tmp_path: Path) -> None:
    source = """
import os
from mobileprep.building.pipeline.output import sweep, workspace_name
from pathlib import Path
workspace_name()
if not (child := os.fork()):
    Path(workspace_name()).mkdir()
    os._exit(0)
os.waitpid(child, 0)
print(len(os.listdir()), sweep(Path()))
"""
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 1\n"


@pytest.mark.parametrize("name", ["0123456789abcdef", "1-" + "f" * 12 + "-5-0123456789abcdef"])
def test_workspaces_of_other_systems_are_removed_when_they_have_rested_a_day(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "graph.pb").write_bytes(b"half")
    assert sweep(tmp_path) == 0
    rest(folder, days=2)
    (folder / "graph.pb").write_bytes(b"still being written")
    assert sweep(tmp_path) == 0
    rest(folder, days=2)
    assert sweep(tmp_path) == 1
    assert not list(tmp_path.iterdir())


def test_where_processes_cannot_be_looked_up_age_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_PROC", tmp_path / "missing")
    output._system.cache_clear()
    output._process.cache_clear()
    try:
        folder = tmp_path / "tmp" / workspace_name()
        folder.mkdir(parents=True)
        assert sweep(folder.parent) == 0
        rest(folder, days=2)
        assert sweep(folder.parent) == 1
    finally:
        output._system.cache_clear()
        output._process.cache_clear()


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


def test_no_folder_has_no_workspaces(tmp_path: Path) -> None:
    assert sweep(tmp_path / "missing") == 0


@linux
def test_several_may_sweep_at_once(tmp_path: Path) -> None:
    pid, system, started, _ = workspace_name().split("-")
    for i in range(50):
        folder = tmp_path / f"{pid}-{system}-{int(started) - 1}-{i:016x}"
        folder.mkdir()
        for name in "abc":
            (folder / name).write_bytes(b"")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(sweep, [tmp_path] * 8))
    assert not list(tmp_path.iterdir())


def test_a_time_ahead_of_the_clock_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "left").mkdir()
    rest(tmp_path / "left", days=-2)
    assert sweep(tmp_path) == 1
