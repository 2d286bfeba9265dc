"""Run many cases in one fork, since a fork takes longer than most cases.

A case runs again in its own fork if it fails, ends the process, or hangs. If the process grew too
large, all of its cases do.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz import limits
from tests.fuzz.case import Case
from tests.fuzz.judge import problems
from tests.fuzz.limits import MEMORY, SECONDS, Outcome, run_case

_READ = 1 << 16


def run_cases(cases: Sequence[Case]) -> Iterator[tuple[Case, Outcome]]:
    """The cases with their outcomes, in order."""
    remaining = list(cases)
    while remaining:
        outcomes, grown = _run_in_fork(remaining)
        for case, outcome in zip(remaining, outcomes, strict=False):
            alone = grown > MEMORY or bool(problems(case, outcome))
            yield case, run_case(case) if alone else outcome
        remaining = remaining[len(outcomes) :]
        if remaining:  # the process ended or hung in this one
            yield remaining[0], run_case(remaining[0])
            remaining = remaining[1:]


def _run_in_fork(cases: Sequence[Case]) -> tuple[list[Outcome], int]:
    """The outcomes of the cases until one ends the process, and the growth of its memory."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=limits.scratch()))
    read_end, write_end = os.pipe()
    before = limits.resident()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        _serve(cases, folder, write_end)
    os.close(write_end)
    try:
        outcomes = list(_outcomes(read_end))
    finally:
        os.close(read_end)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        used = os.wait4(child, 0)[2]
        shutil.rmtree(folder, ignore_errors=True)
    return outcomes, max((used.ru_maxrss << 10) - before, 0)


def _outcomes(read_end: int) -> Iterator[Outcome]:
    """The outcomes that the process sends, until it ends or sends nothing for too long."""
    text = b""
    while True:
        *lines, text = text.split(b"\n")
        for line in lines:
            yield _outcome(*json.loads(line))
        if not select.select([read_end], [], [], SECONDS)[0]:
            return
        block = os.read(read_end, _READ)
        if not block:
            return
        text += block


def _outcome(
    code: int, error: str, seconds: float, printed: str, wrong_files: Sequence[str]
) -> Outcome:
    return Outcome(code, error, 0, seconds, printed=printed, wrong_files=tuple(wrong_files))


def _serve(cases: Sequence[Case], folder: Path, write_end: int) -> None:
    """Run the cases, and send each outcome; never returns."""
    try:
        os.setsid()
        gc.freeze()
        limits.limit()
        before = dict(os.environ)
        for number, case in enumerate(cases):
            os.environ.clear()
            os.environ.update(before)
            message = json.dumps(_run_one(case, folder / str(number))).encode() + b"\n"
            while message:
                message = message[os.write(write_end, message) :]
    finally:
        os._exit(0)


def _run_one(case: Case, folder: Path) -> tuple[int, str, float, str, tuple[str, ...]]:
    """Exit code, error, processor time, printed output, and wrong files."""
    folder.mkdir()
    (folder / "w").mkdir()
    case.write(folder / "w")
    started = time.process_time()
    code = limits.exit_code(case, folder)
    error, printed = limits.printed(folder, "err"), limits.printed(folder, "out")
    wrong_files = limits.wrong_files(case, folder / "w")
    os.chdir("/")
    shutil.rmtree(folder, ignore_errors=True)
    return code, error, time.process_time() - started, printed, wrong_files
