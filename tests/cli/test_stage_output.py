"""Output of stages that run in parallel."""

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


def test_output_of_parallel_stages_is_grouped() -> None:
    both_run, first_ended = threading.Barrier(2), threading.Event()

    def stage(name: str) -> None:
        progress.listen(name, None)
        progress.warn(name, "mind")
        both_run.wait(10)
        sys.stdout.write(f"printed by {name}\n")
        both_run.wait(10)
        sys.stderr.write(f"written by {name}")
        if name == "r/b":
            assert first_ended.wait(10)
        progress.listen(name, 0.5)
        first_ended.set()

    with redirect_stderr(io.StringIO()) as stderr, Progress(2) as progress:
        threads = [threading.Thread(target=stage, args=(name,)) for name in ("r/b", "r/a")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert stderr.getvalue().splitlines() == [
        line
        for name in ("r/a", "r/b")
        for line in (
            f"warning: {name}: mind [MP000]",
            f"printed by {name}",
            f"written by {name}",
            f"{name}  0.50 s",
        )
    ]


def test_output_is_printed_at_the_end_of_the_stage() -> None:
    with redirect_stderr(io.StringIO()) as stderr, Progress(1) as progress:
        progress.listen("r/a", None)
        sys.stdout.write("one\n")
        assert stderr.getvalue() == ""
        progress.listen("r/a", "failed")
        assert stderr.getvalue() == "one\nr/a  failed\n"
        sys.stdout.write("outside\n")
        assert stderr.getvalue().endswith("outside\n")


def test_output_of_other_threads_is_not_buffered() -> None:
    with redirect_stderr(io.StringIO()) as stderr, Progress(1) as progress:
        progress.listen("r/a", None)
        run_on_a_thread(lambda: sys.stdout.write("from elsewhere\n"))
        assert stderr.getvalue() == "from elsewhere\n"


def test_output_of_an_interrupted_stage_is_printed() -> None:
    stderr = io.StringIO()

    def interrupted() -> None:
        with Progress(1) as progress:
            progress.listen("r/a", None)
            sys.stderr.write("began")
            raise KeyboardInterrupt

    with redirect_stderr(stderr), pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stderr.getvalue() == "began\n"


def test_replacement_stream_only_captures_writes() -> None:
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
