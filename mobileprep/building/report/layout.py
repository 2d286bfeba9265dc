"""Text tables that fit a given width.

Implemented here because importing a library would take longer than an incremental build.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from mobileprep.core import printable

_GAP = "  "


# Column where the text of lines with a title begins.
_INDENT = " " * 9


class TextTable(Struct, frozen=True):
    """Headings and rows of cells. A row may have fewer cells than headings.

    Args:
        headings: column headings.
        rows: cells of each row.
        left: number of leading columns that are left-aligned.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


def fitted(table: TextTable, width: int) -> list[str]:
    """Format a table to fit a width: in columns, below the names, or in words."""
    for lines in (columns(table), below_names(table)):
        if all(len(line) <= width for line in lines):
            return lines
    return list(in_words(table, width))


def columns(table: TextTable) -> list[str]:
    """Format rows in columns, left-aligned for text and right-aligned for the others."""
    rows = [table.headings, *table.rows]
    widths = [max(len(r[i]) for r in rows if i < len(r)) for i in range(len(table.headings))]
    return [_line(row, widths, table.left) for row in rows]


def below_names(table: TextTable) -> list[str]:
    """Format each name on its own line, with its numbers in columns below it."""
    numbers = columns(TextTable(("", *table.headings[1:]), tuple(("", *r[1:]) for r in table.rows)))
    lines = [numbers[0]]
    for row, line in zip(table.rows, numbers[1:], strict=True):
        lines += [row[0], line]
    return lines


def in_words(table: TextTable, width: int) -> Iterator[str]:
    """Yield ``nodes 72, params 10.3k`` below each name."""
    import textwrap  # slow to import, and few terminals are so narrow

    for row in table.rows:
        pairs = zip(table.headings[1:], row[1:], strict=False)
        # Keep a heading next to its number.
        words = ", ".join(f"{heading}\0{cell}" for heading, cell in pairs)
        yield row[0]
        for line in textwrap.wrap(words, max(width - len(_GAP), 1)):
            yield _GAP + line.replace("\0", " ")


def wrapped(line: str, width: int) -> list[str]:
    """Wrap a line with a hanging indent, without breaking words."""
    indent = _INDENT if 3 * len(_INDENT) < width else ""
    if len(line) <= width:
        return [line]
    import textwrap  # slow to import, and few reports need it

    return textwrap.wrap(
        line,
        max(width, 1),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _line(cells: Sequence[str], widths: Sequence[int], left: int) -> str:
    return _GAP.join(
        cell.ljust(width) if at < left else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=False))
    ).rstrip()


def number_text(amount: float) -> str:
    """Format integers with all digits and other numbers with four."""
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:,.4g}"


# Characters with a special meaning in Markdown or HTML.
_MARKUP: Final = re.compile(r"[\\`*_{}\[\]<>|#~&@]")


def table(headings: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, first column left-aligned and others right-aligned."""
    yield _row(headings)
    yield _row([":--", *["--:"] * (len(headings) - 1)])
    yield from map(_row, rows)


def plain(text: str) -> str:
    """Escape a string for Markdown on one line. Terminal control characters are escaped also."""
    line = printable.plain(" ".join(text.split()))
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", line)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
