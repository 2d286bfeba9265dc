"""Tables of text for the width there is.

Laid out by hand: importing a library for it would take longer than all other work of a build in
which little has changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from mobileprep.core import printable

_GAP = "  "


# Where texts begin in lines that have a title.
_INDENT = " " * 9


class TextTable(Struct, frozen=True):
    """Headings, and the cells of each row, which may be fewer.

    Args:
        headings: of the columns.
        rows: the cells.
        left: how many columns, the first ones, are of text and stand to the left.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


def fitted(table: TextTable, width: int) -> list[str]:
    """The lines of a table: in columns, else with those below the names, else in words."""
    for lines in (columns(table), below_names(table)):
        if all(len(line) <= width for line in lines):
            return lines
    return list(in_words(table, width))


def columns(table: TextTable) -> list[str]:
    """Rows in columns, those of text to the left and the others to the right."""
    rows = [table.headings, *table.rows]
    widths = [max(len(r[i]) for r in rows if i < len(r)) for i in range(len(table.headings))]
    return [_line(row, widths, table.left) for row in rows]


def below_names(table: TextTable) -> list[str]:
    """The names, each with its numbers in columns below it."""
    numbers = columns(TextTable(("", *table.headings[1:]), tuple(("", *r[1:]) for r in table.rows)))
    lines = [numbers[0]]
    for row, line in zip(table.rows, numbers[1:], strict=True):
        lines += [row[0], line]
    return lines


def in_words(table: TextTable, width: int) -> Iterator[str]:
    """``nodes 72, params 10.3k`` below each name."""
    import textwrap  # costs start-up time, and few terminals are so narrow

    for row in table.rows:
        pairs = zip(table.headings[1:], row[1:], strict=False)
        # A heading stays beside its number.
        words = ", ".join(f"{heading}\0{cell}" for heading, cell in pairs)
        yield row[0]
        for line in textwrap.wrap(words, max(width - len(_GAP), 1)):
            yield _GAP + line.replace("\0", " ")


def wrapped(line: str, width: int) -> list[str]:
    """A line in several, of which the others are set in; words are never cut."""
    indent = _INDENT if 3 * len(_INDENT) < width else ""
    if len(line) <= width:
        return [line]
    import textwrap  # costs start-up time, and few reports need it

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
    """Whole numbers to the last digit, others to four."""
    return f"{amount:,}" if isinstance(amount, int) else f"{amount:,.4g}"


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
