"""Several builds at once, and builds that are interrupted."""

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
from mobileprep.building.report.page.render import PAGE
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
    # Pages tell how long stages took.
    found = (p for p in folder.rglob("*") if p.is_file() and p.name != PAGE)
    return {str(p.relative_to(folder)): p.read_bytes() for p in found}


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


def held(folder: Path) -> AbstractContextManager[bool]:
    """The folder of a target, held by this process as a build holds it."""
    return folder_locks([folder / "out/digits/phone"], wait=False, tell=print)


def read_until(stream: IO[str], text: str) -> str:
    told = ""
    while text not in told:
        line = stream.readline()
        assert line, told
        told += line
    return told


@pytest.mark.slow
def test_a_build_waits_for_the_one_that_has_its_folder_and_says_whose_it_is(
    built_once: Path, folder: Path
) -> None:
    with held(folder):
        other = start(folder, "out", "--target", "download", "--no-wait")
        _, told = other.communicate(timeout=60)
        assert other.returncode == 0, told
        build = start(folder, "out")
        assert build.stderr is not None
        told = read_until(build.stderr, "waiting for")
        assert f"process {os.getpid()} on " in told
        assert build.poll() is None
    _, rest = build.communicate(timeout=60)
    assert build.returncode == 0, rest
    assert outputs(folder / "out") == outputs(built_once / "out")


def test_a_build_that_is_not_to_wait_fails_at_once_and_a_dry_run_does_not_care(
    folder: Path,
) -> None:
    recipe = str(folder / "digits")
    with held(folder):
        for command in (["build", recipe], ["clean", recipe]):
            assert main([*command, "--no-wait", "--out", str(folder / "out")]) == 9
        assert main(["build", "--dry-run", "--no-wait", recipe, "--out", str(folder / "out")]) == 0
    assert not (folder / "out").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_an_interrupt_ends_the_wait(folder: Path) -> None:
    with held(folder):
        build = start(folder, "out")
        assert build.stderr is not None
        read_until(build.stderr, "waiting for")
        build.send_signal(signal.SIGINT)
        _, told = build.communicate(timeout=60)
        assert build.returncode == 130, told
        assert "Traceback" not in told
    assert not (folder / "out").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_what_a_killed_build_held_is_taken_over(built_once: Path, folder: Path) -> None:
    build = start(folder, "out")
    deadline = time.monotonic() + 60
    while not list(folder.glob("out/digits/.*.lock")):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    build.kill()
    build.communicate(timeout=60)
    again = start(folder, "out", "--no-wait")
    _, told = again.communicate(timeout=60)
    assert again.returncode == 0, told
    assert outputs(folder / "out") == outputs(built_once / "out")
