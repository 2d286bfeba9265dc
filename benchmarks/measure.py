"""Runs commands in fresh processes, and tells their wall times and peak memory."""

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
    """Seconds of each run, and the largest resident memory of any in bytes."""

    seconds: tuple[float, ...]
    peak: int

    @property
    def best(self) -> float:
        """The fastest run: what the work takes when nothing else disturbs it."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """The middle run."""
        return statistics.median(self.seconds)


def measure(
    command: Sequence[str], *, runs: int = 5, env: dict[str, str] | None = None
) -> Measured:
    """Run a command some times.

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
    """Run two commands in turn, so that a noisy moment of the machine strikes both."""
    pairs = [(_once(ours, None), _once(theirs, None)) for _ in range(runs)]
    mine = Measured(tuple(a[0] for a, _ in pairs), max(a[1] for a, _ in pairs))
    other = Measured(tuple(b[0] for _, b in pairs), max(b[1] for _, b in pairs))
    return mine, other


def measure_output(command: Sequence[str]) -> str:
    """What a command prints, run once.

    Raises:
        SystemExit: the command failed; its output is shown.
    """
    return _run(command, None)[0]


def set_aside(folder: Path, aside: Path) -> None:
    """Move a folder out of the way, its files emptied.

    It is not removed: for a minute after files were deleted ext4 looks past the inode of each
    whenever another is made, and what is measured next would pay for that.
    """
    if not folder.exists():
        return
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
    aside.mkdir(exist_ok=True)
    folder.rename(tempfile.mkdtemp(dir=aside))


def take_memory(folder: Path, size: int) -> None:
    """Have free memory at hand: write a file of so many bytes, and remove it.

    The host of a virtual machine may take back what lies free for seconds (free page reporting of
    virtio-balloon), and hands it out again ten times slower than a system does its own: 96 MB were
    written to new files in 0.02 s or in 0.26 s. Without this a row would tell which it was.
    """
    block = bytes(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as stream:
        for _ in range(0, size, len(block)):
            stream.write(block)


def mobileprep() -> str:
    """The console script beside this interpreter."""
    return str(Path(sys.executable).with_name("mobileprep"))


def _once(command: Sequence[str], env: dict[str, str] | None) -> tuple[float, int]:
    started = time.perf_counter()
    _, peak = _run(command, env)
    return time.perf_counter() - started, peak


def _run(command: Sequence[str], env: dict[str, str] | None) -> tuple[str, int]:
    """What a command prints, and its largest resident memory in bytes."""
    # Else an editable installation would compile its modules anew in every run.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**inherited, **(env or {})}
    )
    output = process.stdout.read() if process.stdout else b""
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)} failed:\n{output.decode(errors='replace')}")
    return output.decode(errors="replace"), usage.ru_maxrss * 1024
