"""Run commands on a pseudo-terminal and read its screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

COMMAND = "import sys; from mobileprep.cli.main import entry; entry()"


@dataclass(frozen=True)
class TerminalOutput:
    """The exit code of a command and all bytes that it wrote to a terminal."""

    code: int
    data: bytes

    @property
    def screen(self) -> list[str]:
        """The lines that are visible at the end. Only bold names of targets have escape codes."""
        text = re.sub("^\x1b\\[1m(.*)\x1b\\[0m", r"\1", self.data.decode(), flags=re.MULTILINE)
        assert "\x1b" not in text
        return [after_carriage_returns(line) for line in text.replace("\r\n", "\n").split("\n")]

    @property
    def drawn(self) -> list[str]:
        """All successive contents of all lines, in order."""
        pieces = self.data.decode().replace("\r\n", "\n").replace("\n", "\r").split("\r")
        return [piece.rstrip() for piece in pieces if piece.strip()]


def after_carriage_returns(line: str) -> str:
    """The visible text of a line with carriage returns."""
    cells: list[str] = []
    for piece in line.split("\r"):
        cells[: len(piece)] = piece
    return "".join(cells).rstrip()


def set_size(terminal: int, columns: int) -> None:
    """Resize a terminal to 24 lines."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def on_terminal(
    *arguments: object,
    columns: int = 80,
    environ: Mapping[str, str] | None = None,
    code: str = COMMAND,
    meanwhile: Callable[[int, bytes], None] = lambda _terminal, _data: None,
    timeout: float = 120,
) -> TerminalOutput:
    """Run the command line in a process whose streams are a terminal of 24 lines.

    Args:
        arguments: arguments of the command line.
        columns: width of the terminal.
        environ: additional environment variables.
        code: the Python code to run.
        meanwhile: called with the terminal and all output so far, whenever there is more.
        timeout: seconds after which the process is killed.
    """
    master, slave = pty.openpty()
    set_size(slave, columns)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    settings = {"TERM": "xterm-256color", **(environ or {})}
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, **settings}
    )
    os.close(slave)
    data = b""
    end = time.monotonic() + timeout
    try:
        while piece := _read(master, end):
            data += piece
            meanwhile(master, data)
    finally:
        os.close(master)
        if time.monotonic() > end:
            process.kill()
    return TerminalOutput(process.wait(), data)


def _read(terminal: int, end: float) -> bytes:
    """Read available output; empty at the end of the stream or the timeout."""
    ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
    try:
        return os.read(terminal, 65536) if ready else b""
    except OSError:  # the end of the stream on Linux
        return b""
