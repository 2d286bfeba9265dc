"""Depfiles, read by Make and by Ninja themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from mobileprep.cli.build import depfile_text
from mobileprep.errors import UsageError

NAMES = [
    "plain.pb",
    "two words.pb",
    "a#b",
    "a$b",
    "a$$(b)c",
    "a:b",
    "back\\slash",
    "tilde~",
    "per%cent",
    "equal=sign",
    "brackets[1]{2}",
    "ümläut",
    "comma,semi!",
    "deep/er/file",
]
OUTPUT = "out dir/#1/manifest.json"
RULE = "out\\ dir/\\#1/manifest.json:\n\ttouch '$@'\n"
NEWER = 1_500_000_000


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an output and files that it depends on, all older."""
    for number, name in enumerate([*NAMES, OUTPUT]):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    (tmp_path / "models.d").write_text(depfile_text([OUTPUT], NAMES))
    return tmp_path


def code(folder: Path, *command: str) -> int:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "warning" not in done.stderr, done.stderr
    return done.returncode


@needs("make")
@pytest.mark.parametrize("name", NAMES)
def test_make_reads_every_name(folder: Path, name: str) -> None:
    (folder / "Makefile").write_text(f"{RULE}include models.d\n")
    ask = ("make", "-q", "--warn-undefined-variables")
    assert code(folder, *ask) == 0
    os.utime(folder / name, (NEWER, NEWER))
    assert code(folder, *ask) == 1
    (folder / name).unlink()
    expected = 2 if name in {"per%cent", "equal=sign"} else 1
    assert code(folder, *ask) == expected, "a file that is gone is a reason to build, not an error"


@needs("ninja")
def test_ninja_reads_every_name(folder: Path) -> None:
    (folder / "build.ninja").write_text(
        "rule touch\n  command = touch $out\n  depfile = models.d\n"
        "build out$ dir/#1/manifest.json: touch\n"
    )
    told = ["ninja", "-d", "explain"]
    assert code(folder, "ninja") == 0
    for name in NAMES:
        done = subprocess.run([*told, "-n"], cwd=folder, capture_output=True, text=True, check=True)
        assert "no work to do" in done.stdout, done.stdout
        time.sleep(0.02)  # the clock of file systems ticks a hundred times a second at least
        os.utime(folder / name)
        done = subprocess.run(told, cwd=folder, capture_output=True, text=True, check=True)
        assert f"most recent input {name} " in done.stdout + done.stderr


@pytest.mark.parametrize(
    "name",
    ["a\nb", "a;b", "a|b", "a*b", "tab\t", "end\\", "a\\ b", "q'", 'q"', "a&b", "a?", "a (1)"],
)
def test_names_that_no_depfile_can_hold_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be written to a depfile"):
        depfile_text(["out"], [name])


@pytest.mark.parametrize("name", ["a%b", "a=b", "a;b"])
def test_targets_that_make_would_take_for_something_else_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be written to a depfile"):
        depfile_text([name], ["in"])


def test_the_text_is_a_rule_and_an_empty_one_each() -> None:
    assert depfile_text(["o/m", "o/n"], ["a b", "c"]) == "o/m o/n: \\\n a\\ b \\\n c\na\\ b:\nc:\n"
