"""The report as text for a terminal.

The one table there is is laid out here: importing rich for it would take longer than all other
work of a build in which little has changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mobileprep.report.collect import Accuracy, EngineLine, Report, StepLine

_HEADINGS = ("step", "nodes", "parameters", "bytes", "matched", "added", "removed", "changed")
_CHECKED = "difference"
_GAP = "  "
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


def report_text(report: Report, *, color: bool = False) -> str:
    """The report in lines that are as long as they need to be.

    Args:
        report: the report.
        color: set off the target's name, with a terminal's escape sequences.
    """
    name = f"{report.recipe}/{report.target}"
    lines = [f"{_BOLD}{name}{_PLAIN}" if color else name]
    lines += _table(_rows(report))
    lines += [f"  warning: {warning}" for warning in report.source["warnings"]]
    for step in report.steps:
        lines += _remarks(step)
    lines += [f"  warning: {warning}" for warning in report.warnings]
    lines.append(_model_line(report))
    if report.accuracy is not None:
        lines.append(_accuracy_line(report.accuracy))
    lines += _engine_lines(report.engines)
    lines.append("ops      " + ", ".join(f"{op} {count}" for op, count in report.ops.items()))
    return "".join(f"{line}\n" for line in lines)


def _rows(report: Report) -> list[tuple[str, ...]]:
    """The cells of the table of steps, with a last column where steps were checked."""
    checked = any(s.largest_difference is not None for s in report.steps)
    source = report.source
    counts = (source["nodes"], source["parameters"], source["bytes"])
    rows = [
        (*_HEADINGS, _CHECKED) if checked else _HEADINGS,
        ("frozen", *(f"{n:,}" for n in counts)),
    ]
    for s in report.steps:
        numbers = (s.nodes, s.parameters, s.bytes, s.matched, s.added, s.removed, s.changed)
        difference = [_difference(s.largest_difference)] if checked else []
        rows.append((s.name, *(f"{n:,}" for n in numbers), *difference))
    return rows


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Rows in columns, the first of them to the left and the others to the right."""
    widths = [max(len(r[i]) for r in rows if i < len(r)) for i in range(len(rows[0]))]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=False)]
        yield _GAP.join([first.ljust(widths[0]), *cells]).rstrip()


def _remarks(step: StepLine) -> Iterator[str]:
    if not (step.matched or step.skipped or step.warnings or step.added or step.changed):
        yield f"  {step.name}: found nothing to do"
    for reason, count in step.skipped.items():
        yield f"  {step.name}: {count} left as they were: {reason}"
    for warning in step.warnings:
        yield f"  warning: {warning}"


def _model_line(report: Report) -> str:
    model = report.model
    return (
        f"model    {model['file']}: {model['bytes']:,} bytes, "
        f"{model['compressed_bytes']:,} compressed, {model['nodes']:,} nodes"
    )


def _accuracy_line(accuracy: Accuracy) -> str:
    return (
        f"accuracy top-1 {accuracy.top1_before:.4f} before, {accuracy.top1_after:.4f} after "
        f"({accuracy.samples} samples); largest output difference "
        f"{_difference(accuracy.largest_difference)}"
    )


def _engine_lines(engines: Sequence[EngineLine]) -> Iterator[str]:
    """A line for each engine that ran something: what, and how it compares."""
    alike: dict[tuple[str, str], list[EngineLine]] = {}
    for line in engines:
        alike.setdefault((f"{line.name} {line.version}".rstrip(), line.unlike), []).append(line)
    for (engine, unlike), lines in alike.items():
        # Of many checked transforms the count says enough.
        after = [line for line in lines if line.graph not in ("source", "model")]
        ran = [line.graph for line in lines if line not in after]
        if after:
            ran.append(f"{len(after)} transforms' graphs" if len(after) > 1 else after[0].graph)
        yield f"engine   {engine} ran {', '.join(ran)}: {_agreement(lines, unlike)}"


def _agreement(lines: Sequence[EngineLine], unlike: str) -> str:
    if unlike:
        return f"not compared with numpy: {unlike}"
    apart = [line.within for line in lines if line.within is not None]
    if not apart:
        return "it is the reference, so nothing is compared"
    count = max(line.samples for line in lines)
    samples = f"{count} sample{'s' * (count > 1)}"
    return (
        f"agrees with numpy within {max(apart):.0e} of the largest value "
        f"({samples}; at most {lines[0].tolerance:.0e} is allowed)"
    )


def _difference(largest: float | None) -> str:
    return "-" if largest is None else f"{largest:.3g}"
