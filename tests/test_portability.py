"""Builds on macOS and Windows, and file names in a checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mobileprep.cli._shared.diagnostics import located, split_problems

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.skipif(sys.platform != "linux", reason="removes features that only Linux has")
def test_builds_do_not_need_linux_features(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.windows_like", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "first": 24,
        "differ": [],
        "second": 0,
        "edited": [True, False],
        "codes": [0, 0, 0, 0],
    }


def test_checkout_has_no_symlinks_or_names_that_differ_by_case() -> None:
    command = ["git", "ls-files", "--stage"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("120000")] == []
    names = [line.partition("\t")[2] for line in lines]
    assert len({name.lower() for name in names}) == len(names)


def test_locations_with_drive_letters_are_found() -> None:
    diagnostic = located("error", r"C:\app\recipe.yaml:4:3: unknown key 'x'")
    assert (diagnostic.file, diagnostic.line, diagnostic.column) == (r"C:\app\recipe.yaml", 4, 3)
    both = "C:\\a.yaml:1:2: one\n   1 | x\nC:\\a.yaml:2:1: two"
    assert split_problems(both) == ("C:\\a.yaml:1:2: one\n   1 | x", "C:\\a.yaml:2:1: two")
