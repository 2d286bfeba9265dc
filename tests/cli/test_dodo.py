"""The recipes as doit tasks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Done:
    """What doit answered."""

    code: int
    out: str
    err: str


def doit(folder: Path, *arguments: str) -> Done:
    environment = {**os.environ, "MOBILEPREP_CACHE": str(folder / "store")}
    command = [sys.executable, "-m", "doit", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def folder(built_once: Path, tmp_path: Path) -> Path:
    """A project with the digits recipe and a ``dodo.py``."""
    shutil.copy(ROOT / "dodo.py", tmp_path)
    shutil.copytree(built_once / "digits", tmp_path / "recipes" / "digits")
    return tmp_path


def check_model(built_once: Path, folder: Path, target: str) -> None:
    ours = folder / "out" / "digits" / target / "digits.pb"
    theirs = built_once / "out" / "digits" / target / "digits.pb"
    assert ours.read_bytes() == theirs.read_bytes()


def test_doit_lists_builds_and_then_has_nothing_to_do(built_once: Path, folder: Path) -> None:
    listed = doit(folder, "list", "--all").out
    assert "recipe:digits/phone " in listed
    assert "recipe:digits/freeze" in listed
    assert doit(folder).code == 0
    for name in ("phone", "download"):
        check_model(built_once, folder, name)
    again = doit(folder).out.splitlines()
    assert again
    assert all(line.startswith("-- ") for line in again)


def test_one_target_can_be_built_alone(built_once: Path, folder: Path) -> None:
    done = doit(folder, "recipe:digits/phone")
    assert done.code == 0, done.out
    check_model(built_once, folder, "phone")
    assert not (folder / "out" / "digits" / "download").exists()


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_doit_s_own_parallel_runs_work(built_once: Path, folder: Path, kind: str) -> None:
    done = doit(folder, "-n", "3", "-P", kind)
    assert done.code == 0, done.out + done.err
    for name in ("phone", "download"):
        check_model(built_once, folder, name)


@pytest.mark.parametrize(
    ("old", "new", "code", "told"),
    [
        ("outputs: [", "outptus: [", 3, "did you mean 'outputs'?"),
        ("graph: model/graph.pbtxt", "graph: model/grahp.pbtxt", 3, "did you mean 'graph.pbtxt'?"),
        ("outputs: [probabilities]", "outputs: [probabilites]", 1, "'probabilities'"),
    ],
)
def test_faults_are_told_without_a_traceback(
    folder: Path, old: str, new: str, code: int, told: str
) -> None:
    recipe = folder / "recipes" / "digits" / "recipe.yaml"
    text = recipe.read_text()
    assert old in text
    recipe.write_text(text.replace(old, new))
    done = doit(folder)
    assert (done.code, told in done.out + done.err) == (code, True), done
    assert "recipe.yaml:" in done.out + done.err
