"""The report's table of steps, laid out for the width there is.

Laid out by hand: importing a library for it would take longer than all other work of a build in
which little has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mobileprep.report.collect import Report

_GAP = "  "
_UNITS = ("", "k", "M", "G", "T")


@dataclass(frozen=True)
class _Row:
    """The numbers of a step, None where there is nothing to tell."""

    name: str
    nodes: int
    parameters: int
    bytes: int
    counts: tuple[int, int, int, int] | None = None
    difference: float | None = None


@dataclass(frozen=True)
class _Table:
    """Headings, and the cells of each row, which may be fewer."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def step_table(report: Report, width: int) -> list[str]:
    """The lines of the table, in the first of these forms that fits the width.

    In columns, parameters and bytes in full or else rounded; the same with the numbers below the
    names; and, for the narrowest terminals, in words.

    Args:
        report: the report.
        width: the most characters of a line.
    """
    rows = list(_rows(report))
    checked = any(row.difference is not None for row in rows)
    exact = _cells(rows, "parameters", "{:,}".format, checked=checked)
    rounded = _cells(rows, "params", rounded_text, checked=checked)
    forms = (_columns(exact), _columns(rounded), _below_names(exact), _below_names(rounded))
    for lines in forms:
        if all(len(line) <= width for line in lines):
            return lines
    return list(_in_words(rounded, width))


def rounded_text(count: int) -> str:
    """A count in three digits: ``95.8M``."""
    size, unit = float(count), 0
    while round(size) >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    digits = 1 if unit and size < 99.95 else 0
    return f"{size:.{digits}f}{_UNITS[unit]}"


def difference_text(largest: float | None) -> str:
    """The largest difference of an output in three digits."""
    return "-" if largest is None else f"{largest:.3g}"


def _rows(report: Report) -> Iterator[_Row]:
    source = report.source
    yield _Row("frozen", source.nodes, source.parameters, source.bytes)
    for s in report.steps:
        counts = (s.matched, s.added, s.removed, s.changed)
        yield _Row(s.name, s.nodes, s.parameters, s.bytes, counts, s.largest_difference)


def _cells(
    rows: Sequence[_Row], parameters: str, shown: Callable[[int], str], *, checked: bool
) -> _Table:
    """The table's texts, with a last column where steps were checked."""
    headings = ("step", "nodes", parameters, "bytes", "matched", "added", "removed", "changed")
    return _Table(
        (*headings, "difference") if checked else headings,
        tuple(tuple(_texts(row, shown, checked=checked)) for row in rows),
    )


def _texts(row: _Row, shown: Callable[[int], str], *, checked: bool) -> Iterator[str]:
    yield from (row.name, f"{row.nodes:,}", shown(row.parameters), shown(row.bytes))
    if row.counts is not None:
        yield from (f"{count:,}" for count in row.counts)
        if checked:
            yield difference_text(row.difference)


def _columns(table: _Table) -> list[str]:
    """Rows in columns, the first of them to the left and the others to the right."""
    rows = [table.headings, *table.rows]
    widths = [max(len(r[i]) for r in rows if i < len(r)) for i in range(len(table.headings))]
    return [_line(row, widths) for row in rows]


def _below_names(table: _Table) -> list[str]:
    """The names, each with its numbers in columns below it."""
    numbers = _columns(_Table(("", *table.headings[1:]), tuple(("", *r[1:]) for r in table.rows)))
    lines = [numbers[0]]
    for row, line in zip(table.rows, numbers[1:], strict=True):
        lines += [row[0], line]
    return lines


def _in_words(table: _Table, width: int) -> Iterator[str]:
    """``nodes 72, params 10.3k`` below each name."""
    import textwrap  # costs start-up time, and few terminals are so narrow

    for row in table.rows:
        pairs = zip(table.headings[1:], row[1:], strict=False)
        # A heading stays beside its number.
        words = ", ".join(f"{heading}\0{cell}" for heading, cell in pairs)
        yield row[0]
        for line in textwrap.wrap(words, max(width - len(_GAP), 1)):
            yield _GAP + line.replace("\0", " ")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.rjust(width) if number else cell.ljust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=False))
    )
    return _GAP.join([first, *others]).rstrip()
