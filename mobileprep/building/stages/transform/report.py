"""Report what each transform did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from mobileprep.building.report.layout import TextTable, below_names, columns, in_words
from mobileprep.building.stages.check.spec import CheckRecord
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.transform.spec import TransformRecord


class StepLine(Struct, frozen=True):
    """Effect of a transform, and the counts and size of the graph after it."""

    name: str
    nodes: int
    parameters: int
    bytes: int
    matched: int
    added: int
    removed: int
    changed: int
    skipped: Mapping[str, int]
    warnings: tuple[str, ...]
    largest_difference: float | None = None
    """Largest difference of any output element from the source; None if not checked."""
    share_of_peak: float | None = None
    """Largest difference of any output, as a fraction of the source's largest magnitude of it.

    None if not checked.
    """


_OF_CHECK: Final = ("largest_difference", "share_of_peak")


def step_line(record: TransformRecord, check: CheckRecord | None) -> StepLine:
    shared = {
        name: getattr(record, name) for name in StepLine.__struct_fields__ if name not in _OF_CHECK
    }
    if check is None:
        return StepLine(**shared)
    return StepLine(**shared, **{name: getattr(check, name) for name in _OF_CHECK})


def step_remarks(step: StepLine) -> Iterator[str]:
    if not (step.matched or step.skipped or step.warnings or step.added or step.changed):
        yield f"  {step.name}: found nothing to do"
    for reason, count in step.skipped.items():
        yield f"  {step.name}: {count} left as they were: {reason}"
    for warning in step.warnings:
        yield f"  warning: {warning}"


_UNITS = ("", "k", "M", "G", "T")


class _Row(Struct, frozen=True):
    """Numbers of a step, or None where they do not apply."""

    name: str
    nodes: int
    parameters: int
    bytes: int
    counts: tuple[int, int, int, int] | None = None
    difference: float | None = None


def step_table(source: FreezeRecord, steps: Sequence[StepLine], width: int) -> list[str]:
    """Format the table in the first form that fits the width.

    The forms are: columns with full numbers, columns with rounded parameters and bytes, both of
    these with the numbers below the names, and words for the narrowest terminals.
    """
    rows = list(_rows(source, steps))
    checked = any(row.difference is not None for row in rows)
    exact = _cells(rows, "parameters", "{:,}".format, checked=checked)
    rounded = _cells(rows, "params", rounded_text, checked=checked)
    forms = (columns(exact), columns(rounded), below_names(exact), below_names(rounded))
    for lines in forms:
        if all(len(line) <= width for line in lines):
            return lines
    return list(in_words(rounded, width))


def rounded_text(count: int) -> str:
    """Format a count with three digits: ``95.8M``."""
    size, unit = float(count), 0
    while round(size) >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    digits = 1 if unit and size < 99.95 else 0
    return f"{size:.{digits}f}{_UNITS[unit]}"


def difference_text(largest: float | None) -> str:
    """Format the largest difference of an output with three digits."""
    return "-" if largest is None else f"{largest:.3g}"


def _rows(source: FreezeRecord, steps: Sequence[StepLine]) -> Iterator[_Row]:
    yield _Row("frozen", source.nodes, source.parameters, source.bytes)
    for s in steps:
        counts = (s.matched, s.added, s.removed, s.changed)
        yield _Row(s.name, s.nodes, s.parameters, s.bytes, counts, s.largest_difference)


def _cells(
    rows: Sequence[_Row], parameters: str, shown: Callable[[int], str], *, checked: bool
) -> TextTable:
    """Format the cells of the table, with a last column if steps were checked."""
    headings = ("step", "nodes", parameters, "bytes", "matched", "added", "removed", "changed")
    return TextTable(
        (*headings, "difference") if checked else headings,
        tuple(tuple(_texts(row, shown, checked=checked)) for row in rows),
    )


def _texts(row: _Row, shown: Callable[[int], str], *, checked: bool) -> Iterator[str]:
    yield from (row.name, f"{row.nodes:,}", shown(row.parameters), shown(row.bytes))
    if row.counts is not None:
        yield from (f"{count:,}" for count in row.counts)
        if checked:
            yield difference_text(row.difference)
