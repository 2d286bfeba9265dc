"""User-supplied Python files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mobileprep.core.loading import Author, blaming, load_file
from mobileprep.errors import AccuracyError, UsageError

AUTHOR = Author("helper", AccuracyError, "so that nothing came of it")


def test_file_is_executed_on_every_load(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    for number in (1, 2):
        path.write_text(f"x = {number}  # {'.' * number}\n")
        assert load_file(path, "own", AUTHOR).x == number


def test_changed_file_is_reloaded_despite_equal_mtime(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    for number in (1, 2):
        path.write_text(f"x = {number}\n")
        os.utime(path, (1, 1))
        assert load_file(path, "own", AUTHOR).x == number
    assert [*tmp_path.iterdir()] == [path]


def test_exception_is_reported_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("\n\n1 / 0\n")
    with pytest.raises(AccuracyError, match="ZeroDivisionError: division by zero") as error:
        load_file(path, "own", AUTHOR)
    assert (error.value.where, error.value.hint) == (f"{path}:3", "fix the helper")


def test_os_exit_is_reported_as_an_error(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    message = "ended the program, so that nothing came of it"
    with pytest.raises(AccuracyError, match=message), blaming(path, AUTHOR):
        os._exit(0)
    assert os._exit.__module__ in ("nt", "posix")


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the helper .* does not exist"):
        load_file(tmp_path / "none.py", "none", AUTHOR)
