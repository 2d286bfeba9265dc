"""The recipes as doit tasks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def doit(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "MOBILEPREP_CACHE": str(folder / "store")}
    command = [sys.executable, "-m", "doit", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_doit_lists_builds_and_then_has_nothing_to_do(built_once: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "dodo.py", tmp_path)
    shutil.copytree(built_once / "digits", tmp_path / "recipes" / "digits")
    listed = doit(tmp_path, "list", "--all")
    assert "recipe:digits/phone " in listed
    assert "recipe:digits/freeze" in listed
    doit(tmp_path)
    for name in ("phone", "download"):
        ours = tmp_path / "out" / "digits" / name / "digits.pb"
        theirs = built_once / "out" / "digits" / name / "digits.pb"
        assert ours.read_bytes() == theirs.read_bytes()
    again = doit(tmp_path).splitlines()
    assert again
    assert all(line.startswith("-- ") for line in again)
