"""What Markdown is made of: tables, and texts that it shows as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from mobileprep.core import printable

# What Markdown, or HTML in it, would take for something else.
_MARKUP: Final = re.compile(r"[\\`*_{}\[\]<>|#~&@]")


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, the first column to the left, the others to the right."""
    yield _row(headings)
    yield _row([":--", *["--:"] * (len(headings) - 1)])
    yield from map(_row, rows)


def plain(text: str) -> str:
    """A text that Markdown shows as it is, in one line, what steers a terminal in escapes."""
    line = printable.plain(" ".join(text.split()))
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", line)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
