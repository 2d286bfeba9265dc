"""Measure the wall time and peak memory of commands."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Measured:
    """Seconds of each run, and the peak resident memory of all runs in bytes."""

    seconds: tuple[float, ...]
    peak: int

    @property
    def best(self) -> float:
        """Seconds of the fastest run, which other processes disturbed least."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """Median of the seconds."""
        return statistics.median(self.seconds)


def measure(
    command: Sequence[str], *, runs: int = 5, env: dict[str, str] | None = None
) -> Measured:
    """Run a command ``runs`` times.

    Raises:
        SystemExit: the command failed; its output is shown.
    """
    seconds, peak = [], 0
    for _ in range(runs):
        took, memory = _once(command, env)
        seconds.append(took)
        peak = max(peak, memory)
    return Measured(tuple(seconds), peak)


def alternate(
    ours: Sequence[str], theirs: Sequence[str], *, runs: int = 5
) -> tuple[Measured, Measured]:
    """Run two commands alternately, so that other load on the machine affects both."""
    pairs = [(_once(ours, None), _once(theirs, None)) for _ in range(runs)]
    mine = Measured(tuple(a[0] for a, _ in pairs), max(a[1] for a, _ in pairs))
    other = Measured(tuple(b[0] for _, b in pairs), max(b[1] for _, b in pairs))
    return mine, other


def measure_output(command: Sequence[str]) -> str:
    """Run a command once and return its output.

    Raises:
        SystemExit: the command failed; its output is shown.
    """
    return _run(command, None)[0]


def set_aside(folder: Path, aside: Path) -> None:
    """Move a directory away and truncate its files.

    Deleting it would distort the next measurement: for a minute after files are deleted, ext4 skips
    their inodes whenever it creates a file.
    """
    if not folder.exists():
        return
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
    aside.mkdir(exist_ok=True)
    folder.rename(tempfile.mkdtemp(dir=aside))


def take_memory(folder: Path, size: int) -> None:
    """Make free memory available by writing and deleting a file of ``size`` bytes.

    The host of a virtual machine may reclaim memory that is free for seconds (free page reporting
    of virtio-balloon). Getting it back is ten times slower: writing 96 MB to new files took 0.26 s
    instead of 0.02 s. Without this function, measurements would depend on it.
    """
    block = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as stream:
        for _ in range(0, size, len(block)):
            stream.write(block)


def mobileprep() -> str:
    """Return the path of the console script of this interpreter's environment."""
    return str(Path(sys.executable).with_name("mobileprep"))


def _once(command: Sequence[str], env: dict[str, str] | None) -> tuple[float, int]:
    started = time.perf_counter()
    _, peak = _run(command, env)
    return time.perf_counter() - started, peak


def _run(command: Sequence[str], env: dict[str, str] | None) -> tuple[str, int]:
    """Return the output of a command and its peak resident memory in bytes."""
    # Otherwise an editable installation would compile its modules in every run.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**inherited, **(env or {})}
    )
    output = process.stdout.read() if process.stdout else b""
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed:\n{output.decode(errors='replace')}")
    return output.decode(errors="replace"), usage.ru_maxrss * 1024
