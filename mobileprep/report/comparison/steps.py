"""What each transform does by itself, in two builds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mobileprep.report.collect import Report
from mobileprep.report.comparison.chains import aligned
from mobileprep.report.comparison.figures import changed_figures
from mobileprep.report.comparison.model import Kind, StepChange


def step_changes(
    old: Report, new: Report, keys: Mapping[int, Sequence[str]]
) -> Iterator[StepChange]:
    """The transforms that do something else than before.

    Args:
        old: the earlier report.
        new: the report now.
        keys: the recipe's keys that are another, by the position of their step in the new chain.
    """
    before, after = _effects(old), _effects(new)
    names = [[step.name for step in report.steps] for report in (old, new)]
    for i, j in aligned(*names):
        at = j if j is not None else i
        assert at is not None
        causes = tuple(keys.get(j, ())) if j is not None else ()
        figures = changed_figures({} if i is None else before[i], {} if j is None else after[j])
        if i is None or j is None or causes or figures:
            kind: Kind = "added" if i is None else "removed" if j is None else "changed"
            name = names[0][at] if j is None else names[1][at]
            yield StepChange(kind, at + 1, name, causes, figures)


def _effects(report: Report) -> list[dict[str, float | None]]:
    found = []
    nodes, parameters, size = (
        report.source.nodes,
        report.source.parameters,
        report.source.bytes,
    )
    for step in report.steps:
        found.append(
            {
                "nodes": step.nodes - nodes,
                "parameters": step.parameters - parameters,
                "bytes": step.bytes - size,
                "matched": step.matched,
                "added": step.added,
                "removed": step.removed,
                "changed": step.changed,
                "difference": step.largest_difference,
                **{f"left: {reason}": count for reason, count in step.skipped.items()},
            }
        )
        nodes, parameters, size = step.nodes, step.parameters, step.bytes
    return found
