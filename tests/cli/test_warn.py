"""Warnings hold names of nodes, which hold any characters."""

from __future__ import annotations

import pytest

from mobileprep.cli._shared.telling import warn, warn_all


def test_what_could_turn_a_terminal_is_told_in_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    warn("padding=SAM\x00 of a\x1b[2J\u202e")
    assert capsys.readouterr().err == ("warning: padding=SAM\\x00 of a\\x1b[2J\\u202e [MP000]\n")


def test_each_is_told_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    warn_all(["one", "two\nand its hint"])
    told = "warning: one [MP000]\nwarning: two [MP000]\nand its hint\n"
    assert capsys.readouterr().err == told
