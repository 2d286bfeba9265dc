"""Report what each transform did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mobileprep.building.report.layout import TextTable, below_names, columns, in_words
from mobileprep.building.stages.check.spec import CheckRecord
from mobileprep.building.stages.freeze.spec import FreezeRecord
from mobileprep.building.stages.transform.spec import StepEffect, TransformRecord


class StepLine(StepEffect, frozen=True):
    """Effect of a transform, and its check."""

    largest_difference: float | None = None
    """Largest difference of any output element from the source; None if not checked."""
    share_of_peak: float | None = None
    """Largest difference of any output, as a fraction of the source's largest magnitude of it.

    None if not checked.
    """


def step_line(record: TransformRecord, check: CheckRecord | None) -> StepLine:
    effect = {name: getattr(record, name) for name in StepEffect.__struct_fields__}
    if check is None:
        return StepLine(**effect)
    return StepLine(
        **effect,
        largest_difference=check.largest_difference,
        share_of_peak=check.share_of_peak,
    )


def step_remarks(step: StepLine) -> Iterator[str]:
    if not (step.matched or step.skipped or step.warnings or step.added or step.changed):
        yield f"  {step.name}: found nothing to do"
    for reason, count in step.skipped.items():
        yield f"  {step.name}: {count} left as they were: {reason}"
    for warning in step.warnings:
        yield f"  warning: {warning}"


_UNITS = ("", "k", "M", "G", "T")


def step_table(source: FreezeRecord, steps: Sequence[StepLine], width: int) -> list[str]:
    """Format the table in the first form that fits the width.

    The forms are: columns with full numbers, columns with rounded parameters and bytes, both of
    these with the numbers below the names, and words for the narrowest terminals.
    """
    exact = _table(source, steps, "parameters", "{:,}".format)
    rounded = _table(source, steps, "params", rounded_text)
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


def _table(
    source: FreezeRecord, steps: Sequence[StepLine], parameters: str, shown: Callable[[int], str]
) -> TextTable:
    """Return the counts after each step, with a last column if steps were checked."""
    is_checked = any(step.largest_difference is not None for step in steps)
    headings = ("step", "nodes", parameters, "bytes", "matched", "added", "removed", "changed")
    rows: list[tuple[str, ...]] = []
    graphs: list[tuple[str, FreezeRecord | StepLine]]
    graphs = [("frozen", source), *((step.name, step) for step in steps)]
    for name, graph in graphs:
        rows.append((name, f"{graph.nodes:,}", shown(graph.parameters), shown(graph.bytes)))
        if isinstance(graph, StepLine):
            counts = (graph.matched, graph.added, graph.removed, graph.changed)
            difference = [difference_text(graph.largest_difference)] if is_checked else []
            rows[-1] += (*(f"{count:,}" for count in counts), *difference)
    return TextTable((*headings, "difference") if is_checked else headings, tuple(rows))
