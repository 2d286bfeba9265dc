"""Print lines that contain names from models."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TextIO

from mobileprep.core.printable import plain


def show(lines: Iterable[str], keep: str = "", *, file: TextIO | None = None) -> None:
    """Print lines with control characters and unencodable characters escaped."""
    stream = sys.stdout if file is None else file
    encoding = stream.encoding or "utf-8"
    for line in lines:
        print(plain(line, keep).encode(encoding, "backslashreplace").decode(encoding), file=stream)
