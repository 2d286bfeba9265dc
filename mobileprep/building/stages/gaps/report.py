"""Report the differences between data sets."""

from __future__ import annotations

from collections.abc import Iterator

from mobileprep.building.report.layout import plain, table
from mobileprep.building.stages.gaps.spec import Gap

_HEADINGS = ("metric", "output", "data set", "value", "compared with", "its value", "gap", "limit")


def gap_lines(gaps: tuple[Gap, ...]) -> Iterator[str]:
    """Yield a line for each gap that the recipe limits."""
    for gap in gaps:
        metric, output, name, value, first_name, first, difference, limit = _cells(gap)
        yield (
            f"gap      {metric} of {output!r}: {value} on {name}, {first} on {first_name}; "
            f"{difference} apart, at most {limit}"
        )


def gap_markdown(gaps: tuple[Gap, ...]) -> Iterator[str]:
    """Yield a table of the gaps that the recipe limits."""
    if gaps:
        yield ""
        yield from table(_HEADINGS, (list(map(plain, _cells(gap))) for gap in gaps))


def _cells(gap: Gap) -> tuple[str, ...]:
    numbers = (f"{n:.6g}" for n in (gap.value, gap.first_value, gap.gap, gap.max_gap))
    value, first, difference, limit = numbers
    names = gap.metric, gap.output, gap.name
    return *names, value, gap.first_name, first, difference, limit
