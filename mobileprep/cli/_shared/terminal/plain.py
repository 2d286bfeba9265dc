"""Prints lines that hold what a model's author wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from mobileprep.inspection.visible import plain


def show(lines: Iterable[str], keep: str = "") -> None:
    """Print lines, whatever they hold and the standard output can encode.

    Args:
        lines: without their ends.
        keep: controls to leave as they are.
    """
    encoding = sys.stdout.encoding or "utf-8"
    for line in lines:
        print(plain(line, keep).encode(encoding, "backslashreplace").decode(encoding))
