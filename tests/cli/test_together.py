"""Concurrent and interrupted builds."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

import pytest

from mobileprep.building.pipeline.locks import folder_locks
from mobileprep.cli.main import main
from tests.cli.conftest import output_files

# Test runs in the background of a shell ignore SIGINT, and so would their child processes.
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from mobileprep.cli.main import main
from tests.cli.conftest import output_files
sys.exit(main(sys.argv[1:]))
"""


def start(folder: Path, out: str, *more: str) -> subprocess.Popen[str]:
    """Start a build of the digits recipe in another process."""
    recipe = folder / "digits" / "recipe.yaml"
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, "build", str(recipe), "--out", str(folder / out), *more],
        env={**os.environ, "MOBILEPREP_CACHE": str(folder / "store")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def folder(built_once: Path, tmp_path: Path) -> Path:
    """A copy of the unbuilt digits recipe."""
    shutil.copytree(built_once / "digits", tmp_path / "digits")
    return tmp_path


def test_concurrent_builds_share_cache_and_output_directory(built_once: Path, folder: Path) -> None:
    builds = [start(folder, "out"), start(folder, "out", "-j", "4")]
    for build in builds:
        _, err = build.communicate(timeout=120)
        assert build.returncode == 0, err
    assert output_files(folder / "out") == output_files(built_once / "out")
    assert not list((folder / "store").glob("*/tmp/*"))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
@pytest.mark.parametrize("jobs", ["1", "4"])
def test_interrupted_build_writes_no_outputs_and_resumes(
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
    _, err = build.communicate(timeout=60)
    assert build.returncode == 130, err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not (folder / "out").exists()
    monkeypatch.setenv("MOBILEPREP_CACHE", str(folder / "store"))
    completed = len(list((folder / "store").glob("*/ac/*/*.json")))
    assert main(["build", str(folder / "digits/recipe.yaml"), "--out", str(folder / "out")]) == 0
    ran, _, total, *_ = capsys.readouterr().err.splitlines()[-1].split()
    assert int(ran) == int(total) - completed
    assert output_files(folder / "out") == output_files(built_once / "out")


def test_four_jobs_build_the_same_bytes(
    built_once: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOBILEPREP_CACHE", str(folder / "store"))
    recipe = folder / "digits" / "recipe.yaml"
    assert main(["build", str(recipe), "--out", str(folder / "out"), "-j", "4"]) == 0
    assert output_files(folder / "out") == output_files(built_once / "out")


def target_lock(folder: Path) -> AbstractContextManager[bool]:
    """Lock a target directory as a build does."""
    return folder_locks([folder / "out/digits/phone"], wait=False, tell=print)


def read_until(stream: IO[str], text: str) -> str:
    output = ""
    while text not in output:
        line = stream.readline()
        assert line, output
        output += line
    return output


@pytest.mark.slow
def test_build_waits_for_a_locked_directory(built_once: Path, folder: Path) -> None:
    with target_lock(folder):
        other = start(folder, "out", "--target", "download", "--no-wait")
        _, err = other.communicate(timeout=60)
        assert other.returncode == 0, err
        build = start(folder, "out")
        assert build.stderr is not None
        err = read_until(build.stderr, "waiting for")
        assert f"process {os.getpid()} on " in err
        assert build.poll() is None
    _, rest = build.communicate(timeout=60)
    assert build.returncode == 0, rest
    assert output_files(folder / "out") == output_files(built_once / "out")


def test_no_wait_fails_if_the_directory_is_locked(
    folder: Path,
) -> None:
    recipe = str(folder / "digits")
    with target_lock(folder):
        for command in (["build", recipe], ["clean", recipe]):
            assert main([*command, "--no-wait", "--out", str(folder / "out")]) == 9
        assert main(["build", "--dry-run", "--no-wait", recipe, "--out", str(folder / "out")]) == 0
    assert not (folder / "out").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_interrupt_ends_the_wait(folder: Path) -> None:
    with target_lock(folder):
        build = start(folder, "out")
        assert build.stderr is not None
        read_until(build.stderr, "waiting for")
        build.send_signal(signal.SIGINT)
        _, err = build.communicate(timeout=60)
        assert build.returncode == 130, err
        assert "Traceback" not in err
    assert not (folder / "out").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_lock_of_a_killed_build_is_released(built_once: Path, folder: Path) -> None:
    build = start(folder, "out")
    deadline = time.monotonic() + 60
    while not list(folder.glob("out/digits/.*.lock")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    build.kill()
    build.communicate(timeout=60)
    again = start(folder, "out", "--no-wait")
    _, err = again.communicate(timeout=60)
    assert again.returncode == 0, err
    assert output_files(folder / "out") == output_files(built_once / "out")
