"""Prints what a graph prints."""

from __future__ import annotations

import sys
from typing import TextIO

from mobileprep.core.printable import plain
from mobileprep.ops.context import Printed, Printer

_LOG = "log("
_FILE = "file://"


def printer(*, is_result_data: bool) -> Printer:
    """What prints, on the standard error or output as the graph says.

    A log line has its level before it. No file is written: which one, a graph of unknown origin
    would decide. What should go there is printed with the place before it.
    """

    def show(printed: Printed) -> None:
        out = sys.stdout if printed.stream == "stdout" and not is_result_data else sys.stderr
        out.write(_plain(_placed(printed), out))

    return show


def _placed(printed: Printed) -> str:
    line = printed.text.removesuffix("\n")
    if printed.stream.startswith(_LOG):
        return f"{printed.stream.removeprefix(_LOG).removesuffix(')')}: {line}\n"
    if printed.stream.startswith(_FILE):
        return f"not written to {printed.stream}: {line}\n"
    return printed.text


def _plain(text: str, out: TextIO) -> str:
    """A text that the stream takes, and that does nothing to a terminal."""
    if out.isatty():
        text = plain(text, keep="\n\t")
    encoding = out.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
