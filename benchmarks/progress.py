"""Measure the cost of the progress display of a build, in time and in bytes.

    python benchmarks/progress.py [recipe.yaml]

Builds every stage of a recipe, by default the digits recipe, alternately on a pseudo-terminal of 80
columns and with output to pipes. Limits: 5 % more time, and 20 kB for the digits recipe. Every run
is a new process with a cache in a temporary directory.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from pathlib import Path

from measure import measure, mobileprep

DIGITS = Path(__file__).parent.parent / "recipes" / "digits" / "recipe.yaml"
RUNS = 25


def main() -> None:
    recipe = sys.argv[1] if len(sys.argv) > 1 else str(DIGITS)
    with tempfile.TemporaryDirectory() as name:
        env = {"MOBILEPREP_CACHE": f"{name}/store"}
        command = [mobileprep(), "build", recipe, "--force", "--out", f"{name}/out"]
        measure(command, runs=1, env=env)
        pairs, written = [], 0
        for _ in range(RUNS):
            piped = measure(command, runs=1, env=env).best
            seconds, written = on_terminal(command, env)
            pairs.append((seconds, piped))
    # Compare the fastest runs, which other processes disturbed least.
    shown, piped = (min(side) for side in zip(*pairs, strict=True))
    more = shown / piped - 1
    print(f"in pipes: {piped:.3f} s; on a terminal: {shown:.3f} s, {more:+.1%} (bound 5%)")
    print(f"bytes written to the terminal: {written:,} (bound 20,000 for the digits)")


def on_terminal(command: Sequence[str], env: dict[str, str]) -> tuple[float, int]:
    """Run a command on a terminal; return the seconds and the number of bytes written."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    settings = {**os.environ, "TERM": "xterm-256color", **env}
    started = time.perf_counter()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=settings)
    os.close(theirs)
    written = 0
    while piece := read(ours):
        written += len(piece)
    code = process.wait()
    seconds = time.perf_counter() - started
    os.close(ours)
    if code != 0:
        sys.exit(f"{' '.join(command)} failed with the exit code {code}")
    return seconds, written


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux raises this error at the end
        return b""


if __name__ == "__main__":
    main()
