"""Run a case in a separate process, with limits on memory and time."""

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
"""Stands for the working directory in environment variables."""
BUDGET = 256 << 20
"""Memory budget for tensors."""
MEMORY = 1 << 30
"""Maximum growth of a process: the budget, the scratch memory of kernels, and the graphs."""
_ADDRESSES = 4 << 30  # a last resort, to protect the machine
_LARGEST_FILE = 1 << 30
_SHOWN = 1 << 20
_CRASHED = 71


class Outcome(Struct, frozen=True):
    """How a command ended.

    Args:
        code: the exit code, negative for a signal.
        error: its standard error.
        grown: growth of the process in bytes.
        seconds: its duration.
        timed_out: whether it was killed.
        printed: its standard output.
        wrong_files: expected files that are missing or differ.
    """

    code: int
    error: str
    grown: int
    seconds: float
    timed_out: bool = False
    printed: str = ""
    wrong_files: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def scratch() -> str | None:
    """The parent directory for cases: in memory if possible."""
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
        return replace(outcome, wrong_files=wrong_files(case, folder / "w"))
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
    with contextlib.suppress(ProcessLookupError):  # its child processes
        os.killpg(child, signal.SIGKILL)
    error, output = printed(folder, "err"), printed(folder, "out")
    grown = max((used.ru_maxrss << 10) - before, 0)
    code = os.waitstatus_to_exitcode(status)
    return Outcome(code, error, grown, used.ru_utime + used.ru_stime, not ended, output)


def wrong_files(case: Case, folder: Path) -> tuple[str, ...]:
    """The expected files that a command did not write."""
    return tuple(n for n, digest in case.expected.items() if _digest(folder / n) != digest)


def _digest(path: Path) -> str | None:
    return sha256_bytes(path.read_bytes()) if path.is_file() else None


def resident() -> int:
    """The resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _run(case: Case, folder: Path) -> None:
    """Run the command; never returns."""
    code = _CRASHED
    try:
        os.setsid()
        limit()
        code = exit_code(case, folder)
    finally:
        os._exit(code)


def exit_code(case: Case, folder: Path) -> int:
    """Run the command of a case like ``run_here``, and return its exit code after any exception."""
    try:
        return run_here(case, folder)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001 - any exception is a finding
        traceback.print_exc()
        return _CRASHED
    finally:
        flush()


def run_here(case: Case, folder: Path) -> int:
    """Run the command of a case in this process, and change its environment for good.

    Args:
        case: a case whose files are in ``w``.
        folder: the directory of ``w``, and of the files for its output.
    """
    _redirect(folder)
    os.environ.update(case_environment(folder / "w", case.environment))
    os.chdir(folder / "w")
    tempfile.tempdir = str(folder)
    from mobileprep.cli.main import main

    return main(list(case.arguments))


def flush() -> None:
    """Flush the standard streams if possible."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()


def printed(folder: Path, stream_name: str) -> str:
    """Read the start of ``out`` or ``err``."""
    with (folder / stream_name).open("rb") as stream:
        return stream.read(_SHOWN).decode("utf-8", "backslashreplace")


def case_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that confine a command to a directory and the budget, and those of the case."""
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
