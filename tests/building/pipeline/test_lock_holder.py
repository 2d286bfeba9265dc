"""What a lock says of its holder, and when a holder is known to be gone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from msgspec.structs import replace

from mobileprep.building.pipeline.folder_lock import Holder, read_holder, this_process


def test_a_holder_is_read_as_it_was_written() -> None:
    here = this_process()
    assert read_holder(here.as_bytes()) == here
    assert here.pid == os.getpid()
    assert not here.is_gone


def test_control_characters_do_not_reach_a_terminal() -> None:
    sly = replace(this_process(), host="a\x1b[2Jb", command="x" * 900)
    read = read_holder(sly.as_bytes())
    assert read is not None
    assert read.host == "a?[2Jb"
    assert len(read.command) == 200


@pytest.mark.skipif(os.name == "nt", reason="processes are not asked for there")
def test_a_process_that_ended_is_gone_and_so_is_one_before_the_last_start() -> None:
    here = this_process()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert replace(here, pid=ended.pid, started="").is_gone
    assert not replace(here, pid=1, started="").is_gone
    if here.boot:
        assert replace(here, boot="earlier").is_gone
    if here.started:
        assert replace(here, started="0").is_gone
    assert not replace(here, host="another", pid=ended.pid).is_gone


@pytest.mark.skipif(not this_process().namespace, reason="the system does not tell")
def test_a_process_of_another_container_is_not_taken_for_gone() -> None:
    """Two containers of one machine may have one name, and give the same numbers."""
    other = replace(this_process(), namespace="pid:[1]", started="0")
    assert not other.is_gone
    assert replace(other, boot="earlier").is_gone


def test_a_number_that_no_process_can_have_is_not_taken_for_gone() -> None:
    assert not replace(this_process(), pid=1 << 80).is_gone


def test_values_of_variables_are_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/a/mobileprep", "build", "--set", "KEY=secret", "--set=A=b"])
    assert this_process().command == "mobileprep build --set KEY=... --set=..."


def test_a_lock_is_a_line_of_json_sorted() -> None:
    taken = "2026-01-01 00:00:00 +0000"
    holder = Holder(7, "here", "boot", "pid:[4]", "99", taken, "mobileprep build")
    assert holder.as_bytes() == (
        b'{"boot": "boot", "command": "mobileprep build", "host": "here", '
        b'"namespace": "pid:[4]", "pid": 7, "since": "2026-01-01 00:00:00 +0000", '
        b'"started": "99"}\n'
    )
    assert str(holder) == ("process 7 on here since 2026-01-01 00:00:00 +0000 (mobileprep build)")
