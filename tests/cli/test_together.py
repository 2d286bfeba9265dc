"""Several builds at once, and builds that are interrupted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mobileprep.cli.main import main

# A test run that a shell put in the background ignores interrupts, and so would its children.
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from mobileprep.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def start(folder: Path, out: str, *more: str) -> subprocess.Popen[str]:
    """A build of the digits recipe in ``folder``, in a process of its own."""
    recipe = folder / "digits" / "recipe.yaml"
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "build", str(recipe), "--out", str(folder / out), *more],
        env={**os.environ, "MOBILEPREP_CACHE": str(folder / "store")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def outputs(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def folder(built_once: Path, tmp_path: Path) -> Path:
    """A copy of the digits recipe that is not built."""
    shutil.copytree(built_once / "digits", tmp_path / "digits")
    return tmp_path


def test_builds_at_once_into_one_store_and_one_folder_all_end_well(
    built_once: Path, folder: Path
) -> None:
    builds = [start(folder, "out"), start(folder, "out", "-j", "4")]
    for build in builds:
        _, told = build.communicate(timeout=120)
        assert build.returncode == 0, told
    assert outputs(folder / "out") == outputs(built_once / "out")
    assert not list((folder / "store").glob("*/tmp/*"))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
@pytest.mark.parametrize("jobs", ["1", "4"])
def test_an_interrupt_ends_the_build_whole(
    built_once: Path,
    folder: Path,
    jobs: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    build = start(folder, "out", "-j", jobs)
    deadline = time.monotonic() + 60
    while not list((folder / "store").glob("*/ac/*/*.json")):
        assert build.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    build.send_signal(signal.SIGINT)
    _, told = build.communicate(timeout=60)
    assert build.returncode == 130, told
    assert "interrupted" in told
    assert "Traceback" not in told
    assert not (folder / "out").exists()
    monkeypatch.setenv("MOBILEPREP_CACHE", str(folder / "store"))
    kept = len(list((folder / "store").glob("*/ac/*/*.json")))
    assert main(["build", str(folder / "digits/recipe.yaml"), "--out", str(folder / "out")]) == 0
    ran, _, total, *_ = capsys.readouterr().err.splitlines()[-1].split()
    assert int(ran) == int(total) - kept
    assert outputs(folder / "out") == outputs(built_once / "out")


def test_four_jobs_give_the_same_bytes(
    built_once: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(folder / "store"))
    recipe = folder / "digits" / "recipe.yaml"
    assert main(["build", str(recipe), "--out", str(folder / "out"), "-j", "4"]) == 0
    assert outputs(folder / "out") == outputs(built_once / "out")
