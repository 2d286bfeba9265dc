"""Commands on a pseudo-terminal, and what its screen shows of them."""

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
class Shown:
    """What a command left on a terminal.

    Args:
        code: its exit code.
        data: every byte that it wrote.
    """

    code: int
    data: bytes

    @property
    def screen(self) -> list[str]:
        """The lines that stay to be read, each as it was written over last.

        The names of targets, which the report sets off, are the only ones with escape codes.
        """
        text = re.sub("^\x1b\\[1m(.*)\x1b\\[0m", r"\1", self.data.decode(), flags=re.MULTILINE)
        assert "\x1b" not in text
        return [written_over(line) for line in text.replace("\r\n", "\n").split("\n")]

    @property
    def drawn(self) -> list[str]:
        """Everything that was ever shown in a line, in order."""
        pieces = self.data.decode().replace("\r\n", "\n").replace("\n", "\r").split("\r")
        return [piece.rstrip() for piece in pieces if piece.strip()]


def written_over(line: str) -> str:
    """A line in which each carriage return starts again at the left."""
    cells: list[str] = []
    for piece in line.split("\r"):
        cells[: len(piece)] = piece
    return "".join(cells).rstrip()


def set_size(terminal: int, columns: int) -> None:
    """Give a terminal 24 lines of so many columns."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def on_terminal(
    *arguments: object,
    columns: int = 80,
    environ: Mapping[str, str] | None = None,
    code: str = COMMAND,
    meanwhile: Callable[[int, bytes], None] = lambda _terminal, _data: None,
    timeout: float = 120,
) -> Shown:
    """Run the command line in a process whose streams are a terminal of 24 lines.

    Args:
        arguments: of the command line.
        columns: of the terminal.
        environ: settings beside this process's own.
        code: the Python that is run.
        meanwhile: called with the terminal and all that was written, whenever there is more.
        timeout: seconds after which the command is given up.
    """
    ours, theirs = pty.openpty()
    set_size(theirs, columns)
    command = [sys.executable, "-c", code, *map(str, arguments)]
    settings = {"TERM": "xterm-256color", **(environ or {})}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **settings}
    )
    os.close(theirs)
    data = b""
    end = time.monotonic() + timeout
    try:
        while piece := _read(ours, end):
            data += piece
            meanwhile(ours, data)
    finally:
        os.close(ours)
        if time.monotonic() > end:
            process.kill()
    return Shown(process.wait(), data)


def _read(terminal: int, end: float) -> bytes:
    """Some of what is written; nothing once all who could write are gone."""
    ready, _, _ = select.select([terminal], [], [], max(0.0, end - time.monotonic()))
    try:
        return os.read(terminal, 65536) if ready else b""
    except OSError:  # Linux tells the end so
        return b""
