"""Running a case in a process of its own, with limits on memory and time."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.core.files import sha256_bytes
from tests.fuzz.case import Case

SECONDS = 20.0
FOLDER = "{folder}"
"""In variables: the folder that a command runs in."""
BUDGET = 256 << 20
"""What a run may plan for its tensors."""
MEMORY = 1 << 30
"""What a process may grow by: the budget, what kernels work with, and what graphs are read into."""
_ADDRESSES = 4 << 30  # a last resort, for the machine's sake
_LARGEST_FILE = 1 << 30
_SHOWN = 1 << 20


class Outcome(Struct, frozen=True):
    """How a command ended.

    Args:
        code: the exit code, negative for a signal.
        error: what it printed to the standard error.
        grown: bytes that the process grew by.
        seconds: how long it took.
        timed_out: whether it was stopped.
        printed: what it printed to the standard output.
        falsified: which of the expected files are not there, or others.
    """

    code: int
    error: str
    grown: int
    seconds: float
    timed_out: bool = False
    printed: str = ""
    falsified: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def scratch() -> str | None:
    """Where the folders of cases lie: in memory, where the machine has a file system for that."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * _LARGEST_FILE:
        return str(memory)
    return None


def run_case(case: Case) -> Outcome:
    """Run a case in a fork of this process."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-", dir=scratch()))
    try:
        work = folder / "w"
        work.mkdir()
        case.write(work)
        outcome = _forked(case, folder)
        return replace(outcome, falsified=falsified(case, folder / "w"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _forked(case: Case, folder: Path) -> Outcome:
    sys.stdout.flush()
    sys.stderr.flush()
    before = resident()
    child = os.fork()
    if child == 0:
        _run(case, folder)
    return _awaited(child, folder, before)


def _awaited(child: int, folder: Path, before: int) -> Outcome:
    descriptor = os.pidfd_open(child)
    try:
        ended = bool(select.select([descriptor], [], [], SECONDS)[0])
    finally:
        os.close(descriptor)
    if not ended:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):  # what a command has left running
        os.killpg(child, signal.SIGKILL)
    error, answer = printed(folder, "err"), printed(folder, "out")
    grown = max((used.ru_maxrss << 10) - before, 0)
    code = os.waitstatus_to_exitcode(status)
    return Outcome(code, error, grown, used.ru_utime + used.ru_stime, not ended, answer)


def falsified(case: Case, folder: Path) -> tuple[str, ...]:
    """The files that a command should have left in its folder and has not."""
    return tuple(n for n, digest in case.expected.items() if _digest(folder / n) != digest)


def _digest(path: Path) -> str | None:
    return sha256_bytes(path.read_bytes()) if path.is_file() else None


def resident() -> int:
    """The bytes of memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _run(case: Case, folder: Path) -> None:
    """Run the command; never returns."""
    code = 71
    try:
        os.setsid()
        limit()
        code = run_here(case, folder)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - whatever it is, it is the finding
        traceback.print_exc()
    finally:
        flush()
        os._exit(code)


def run_here(case: Case, folder: Path) -> int:
    """Run the command of a case in this process, whose surroundings are the case's from now on.

    Args:
        case: the case, whose files are in ``w``.
        folder: what it prints goes to files here.
    """
    _redirect(folder)
    os.environ.update(surroundings(folder / "w", case.environment))
    os.chdir(folder / "w")
    tempfile.tempdir = str(folder)
    from mobileprep.cli.main import main

    return main(list(case.arguments))


def flush() -> None:
    """Write what was printed, where that can be."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()


def printed(folder: Path, stream_name: str) -> str:
    """What a command printed to ``out`` or ``err``."""
    with (folder / stream_name).open("rb") as stream:
        return stream.read(_SHOWN).decode("utf-8", "backslashreplace")


def surroundings(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that keep a command to a folder and to the budget, and those of a case."""
    own = {name: value.replace(FOLDER, str(folder)) for name, value in environment.items()}
    return {
        **own,
        "MOBILEPREP_CACHE": str(folder / "store"),
        "MOBILEPREP_MEMORY": str(BUDGET),
        "HOME": str(folder),
    }


def _redirect(folder: Path) -> None:
    for name, descriptor in (("out", 1), ("err", 2)):
        file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - until the process ends
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, errors="backslashreplace")  # noqa: SIM115


def limit() -> None:
    """Limit the memory and the files of this process, as a last resort."""
    size = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    addresses = size * resource.getpagesize() + _ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
