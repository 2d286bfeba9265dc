"""Running many cases in one fork, one after another: a fork takes longer than most cases do.

What is learnt so is believed only of cases that go well. One that fails, one that the process ends
or hangs in, and all cases of a process that grew too large, run again, each in a fork of its own.
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
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.fuzz import limits
from tests.fuzz.case import Case
from tests.fuzz.judge import faults
from tests.fuzz.limits import MEMORY, SECONDS, Outcome, run_case

_READ = 1 << 16


def run_cases(cases: Sequence[Case]) -> Iterator[tuple[Case, Outcome]]:
    """The cases with their outcomes, in order."""
    left = list(cases)
    while left:
        outcomes, grown = _in_a_fork(left)
        for case, outcome in zip(left, outcomes, strict=False):
            alone = grown > MEMORY or bool(faults(case, outcome))
            yield case, run_case(case) if alone else outcome
        left = left[len(outcomes) :]
        if left:  # the process ended or hung in this one
            yield left[0], run_case(left[0])
            left = left[1:]


def _in_a_fork(cases: Sequence[Case]) -> tuple[list[Outcome], int]:
    """The outcomes of the first cases, all but where one ends the process, and what it grew by."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=limits.scratch()))
    reading, writing = os.pipe()
    before = limits.resident()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _serve(cases, folder, writing)
    os.close(writing)
    try:
        outcomes = list(_answers(reading))
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        used = os.wait4(child, 0)[2]
        shutil.rmtree(folder, ignore_errors=True)
    return outcomes, max((used.ru_maxrss << 10) - before, 0)


def _answers(reading: int) -> Iterator[Outcome]:
    """What the process tells, until it ends or is silent for too long."""
    text = b""
    while True:
        *lines, text = text.split(b"\n")
        for line in lines:
            yield _outcome(*json.loads(line))
        if not select.select([reading], [], [], SECONDS)[0]:
            return
        block = os.read(reading, _READ)
        if not block:
            return
        text += block


def _outcome(
    code: int, error: str, seconds: float, printed: str, falsified: Sequence[str]
) -> Outcome:
    return Outcome(code, error, 0, seconds, printed=printed, falsified=tuple(falsified))


def _serve(cases: Sequence[Case], folder: Path, writing: int) -> None:
    """Run the cases and tell of each; never returns."""
    try:
        os.setsid()
        gc.freeze()
        limits.limit()
        before = dict(os.environ)
        for number, case in enumerate(cases):
            os.environ.clear()
            os.environ.update(before)
            answer = json.dumps(_served(case, folder / str(number))).encode() + b"\n"
            while answer:
                answer = answer[os.write(writing, answer) :]
    finally:
        os._exit(0)


def _served(case: Case, folder: Path) -> tuple[int, str, float, str, tuple[str, ...]]:
    """What an outcome is of: exit code, error, processor time, what was printed and falsified."""
    folder.mkdir()
    (folder / "w").mkdir()
    case.write(folder / "w")
    started = time.process_time()
    code: Any = 71
    try:
        code = limits.run_here(case, folder)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever it is, it is the finding
        traceback.print_exc()
    limits.flush()
    error, printed = limits.printed(folder, "err"), limits.printed(folder, "out")
    falsified = limits.falsified(case, folder / "w")
    os.chdir("/")
    shutil.rmtree(folder, ignore_errors=True)
    return code, error, time.process_time() - started, printed, falsified
