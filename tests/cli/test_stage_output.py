"""What stages write that run at once."""

from __future__ import annotations

import io
import sys
import threading
from contextlib import redirect_stderr

import pytest

from mobileprep.cli._shared.terminal.progress import Progress, StageOutput


def run_on_a_thread(work) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_what_stages_at_once_write_comes_stage_by_stage() -> None:
    both_run, first_ended = threading.Barrier(2), threading.Event()

    def stage(name: str) -> None:
        progress.listen(name, None)
        progress.warn(name, "mind")
        both_run.wait(10)
        sys.stdout.write(f"printed by {name}\n")
        both_run.wait(10)
        sys.stderr.write(f"told by {name}")
        if name == "r/b":
            assert first_ended.wait(10)
        progress.listen(name, 0.5)
        first_ended.set()

    with redirect_stderr(io.StringIO()) as told, Progress(2) as progress:
        threads = [threading.Thread(target=stage, args=(name,)) for name in ("r/b", "r/a")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told.getvalue().splitlines() == [
        line
        for name in ("r/a", "r/b")
        for line in (
            f"warning: {name}: mind [MP000]",
            f"printed by {name}",
            f"told by {name}",
            f"{name}  0.50 s",
        )
    ]


def test_nothing_is_told_before_its_stage_ends_and_all_is_then() -> None:
    with redirect_stderr(io.StringIO()) as told, Progress(1) as progress:
        progress.listen("r/a", None)
        sys.stdout.write("one\n")
        assert told.getvalue() == ""
        progress.listen("r/a", "failed")
        assert told.getvalue() == "one\nr/a  failed\n"
        sys.stdout.write("by nobody\n")
        assert told.getvalue().endswith("by nobody\n")


def test_what_other_threads_write_meanwhile_is_not_held_back() -> None:
    with redirect_stderr(io.StringIO()) as told, Progress(1) as progress:
        progress.listen("r/a", None)
        run_on_a_thread(lambda: sys.stdout.write("from elsewhere\n"))
        assert told.getvalue() == "from elsewhere\n"


def test_an_interrupted_stage_s_lines_are_not_lost() -> None:
    told = io.StringIO()

    def interrupted() -> None:
        with Progress(1) as progress:
            progress.listen("r/a", None)
            sys.stderr.write("began")
            raise KeyboardInterrupt

    with redirect_stderr(told), pytest.raises(KeyboardInterrupt):
        interrupted()
    assert told.getvalue() == "began\n"


def test_a_stream_in_another_s_place_is_that_other_but_for_what_is_written() -> None:
    shown: list[str] = []
    output = StageOutput(shown.append)
    behind = io.StringIO("behind")
    stream = output.stream(behind)
    assert stream.readline() == "behind"
    stream.writelines(["a", "b\nc"])
    assert shown == ["ab\n"]
    output.finish()
    assert shown == ["ab\n", "c\n"]
    assert behind.getvalue() == "behind"
