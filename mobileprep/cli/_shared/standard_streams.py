"""The three standard streams, where whoever started the command has closed some of them."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class _Messages(io.FileIO):
    """A standard error stream whose messages go nowhere once nothing takes them.

    Nobody reads on, or a disk is full: no reason to end a build, let alone to end it with success
    before it has written anything.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            return super().write(data)


def open_closed_streams() -> None:
    """Put something in place of closed streams, which Python has None for.

    Otherwise the first files that are opened would take their descriptors, and what a library
    prints would go into a model. An output that is closed stays one that cannot be written to,
    which is told as of a full disk; messages go nowhere.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        if not _is_open(descriptor):
            os.open(os.devnull, flags)  # the lowest number that is free, which is this one
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - until the end
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def let_messages_get_lost() -> None:
    """Go on where the standard error stream takes no more."""
    stream = sys.stderr
    if not isinstance(stream, io.TextIOWrapper):
        return
    stream.flush()
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Messages(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
    )


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
