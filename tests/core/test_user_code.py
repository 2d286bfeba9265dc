"""Python files of the user's own, run and answered for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mobileprep.core.loading import Author, blaming, load_file
from mobileprep.errors import AccuracyError, UsageError

AUTHOR = Author("helper", AccuracyError, "so that nothing came of it")


def test_a_file_is_run_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    for number in (1, 2):
        path.write_text(f"x = {number}  # {'.' * number}\n")
        assert load_file(path, "own", AUTHOR).x == number


def test_what_runs_is_what_the_file_says_whatever_its_times_say(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    for number in (1, 2):
        path.write_text(f"x = {number}\n")
        os.utime(path, (1, 1))
        assert load_file(path, "own", AUTHOR).x == number
    assert [*tmp_path.iterdir()] == [path]


def test_what_it_raises_is_told_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("\n\n1 / 0\n")
    with pytest.raises(AccuracyError, match="ZeroDivisionError: division by zero") as caught:
        load_file(path, "own", AUTHOR)
    assert (caught.value.where, caught.value.hint) == (f"{path}:3", "fix the helper")


def test_ending_the_program_is_no_success(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    told = "ended the program, so that nothing came of it"
    with pytest.raises(AccuracyError, match=told), blaming(path, AUTHOR):
        os._exit(0)
    assert os._exit.__module__ in ("nt", "posix")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the helper .* does not exist"):
        load_file(tmp_path / "none.py", "none", AUTHOR)
