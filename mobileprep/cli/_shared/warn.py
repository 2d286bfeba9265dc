"""Warnings on the standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def warn(sentence: str) -> None:
    """Tell of something that is no error; names of nodes may hold any characters."""
    from mobileprep.inspection.visible import plain  # few commands warn

    print("mobileprep: warning:", plain(sentence, keep="\n"), file=sys.stderr)


def warn_all(sentences: Iterable[str]) -> None:
    """Tell of several things."""
    for sentence in sentences:
        warn(sentence)
