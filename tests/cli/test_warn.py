"""Warnings contain names of nodes with arbitrary characters."""

from __future__ import annotations

import pytest

from mobileprep.cli._shared.telling import warn, warn_all


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    warn("padding=SAM\x00 of a\x1b[2J\u202e")
    assert capsys.readouterr().err == ("warning: padding=SAM\\x00 of a\\x1b[2J\\u202e [MP000]\n")


def test_warnings_are_on_separate_lines(capsys: pytest.CaptureFixture[str]) -> None:
    warn_all(["one", "two\nand its hint"])
    expected = "warning: one [MP000]\nwarning: two [MP000]\nand its hint\n"
    assert capsys.readouterr().err == expected
