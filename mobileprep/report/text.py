"""The report as text, for a terminal of some width or for a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mobileprep.inspection.visible import plain
from mobileprep.plan.records import BudgetLine
from mobileprep.plan.running_records import CalibrationRecord, CheckRecord
from mobileprep.report.budget import budget_text, cost_text, kernels_text
from mobileprep.report.calibration_text import calibration_text
from mobileprep.report.collect import Accuracy, Checked, EngineLine, Report, StepLine
from mobileprep.report.layout import wrapped
from mobileprep.report.metric_table import metric_table, metric_text, metric_title
from mobileprep.report.migration import migration_lines
from mobileprep.report.quantization import damage_lines
from mobileprep.report.step_table import difference_text, step_table

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
USUAL_WIDTH = 80


def report_text(report: Report, *, color: bool = False, width: int | None = None) -> str:
    """The report in lines; no name or warning in it does anything to a terminal.

    Args:
        report: the report.
        color: set off the target's name, with a terminal's escape sequences.
        width: of the terminal, in characters, which no line is longer than unless a word is; None
            where it is not for one: then the table has at most 80, and sentences stay in one line.
    """
    name = plain(f"{report.recipe}/{report.target}")
    lines = [f"{BOLD}{name}{PLAIN}" if color else name]
    lines += map(plain, step_table(report, width or USUAL_WIDTH))
    rest = [f"  warning: {warning}" for warning in report.source.warnings]
    for step in report.steps:
        rest += _remarks(step)
    rest += [f"  warning: {warning}" for warning in report.warnings]
    rest.append(_model_line(report))
    rest += _budget_lines(report.budget)
    rest += [] if report.cost is None else [f"cost     {cost_text(report.cost)}"]
    rest += [f"kernels  {kernels_text(found)}" for found in report.kernels]
    if report.check is not None:
        rest += _check_lines(report.check)
    for calibration in report.calibrations:
        rest += _calibration_lines(calibration)
    if report.accuracy is not None:
        rest += _accuracy_lines(report.accuracy, width or USUAL_WIDTH)
    if report.damage is not None:
        rest += damage_lines(report.damage, width or USUAL_WIDTH)
    if report.migration is not None:
        rest += migration_lines(report.migration)
    rest += _engine_lines(report.engines)
    ops = ", ".join(f"{op} {count}" for op, count in report.ops.items())
    rest.append(f"ops      {ops}{f'; {report.model.basis}' if report.model.basis else ''}")
    told = map(plain, rest)
    lines += told if width is None else (part for line in told for part in wrapped(line, width))
    return "".join(f"{line}\n" for line in lines)


def _remarks(step: StepLine) -> Iterator[str]:
    if not (step.matched or step.skipped or step.warnings or step.added or step.changed):
        yield f"  {step.name}: found nothing to do"
    for reason, count in step.skipped.items():
        yield f"  {step.name}: {count} left as they were: {reason}"
    for warning in step.warnings:
        yield f"  warning: {warning}"


def _model_line(report: Report) -> str:
    model, packed = report.model, report.compressed
    return (
        f"model    {model.file}: {model.bytes:,} bytes, {packed.bytes:,} compressed "
        f"({packed.compressor}), {model.nodes:,} nodes{f'; {model.basis}' if model.basis else ''}"
    )


def _budget_lines(lines: Sequence[BudgetLine]) -> Iterator[str]:
    """A line for each limit, with what is left of it."""
    for line in lines:
        basis = f" ({line.basis})" if line.basis else ""
        yield f"budget   {line.name}: {budget_text(line)}{basis}"


def _check_lines(check: Checked) -> Iterator[str]:
    samples = f"{check.samples} sample{'s' * (check.samples != 1)}"
    origin = f"{samples} drawn" if check.data is None else f"{samples} of {check.data}"
    where = f" after {check.step}" if check.step and check.share_of_peak else ""
    rows = [_difference(check, where, check.basis)] if check.step else []
    if check.model is not None:
        rows.append(_difference(check.model, "", check.model.basis))
    yield f"check    {origin}: {rows[0]}"
    if check.data is None:
        yield from (f"  {name}: {what}" for name, what in check.inputs.items())
    yield from (f"check    {origin}: {row}" for row in rows[1:])
    yield from (f"  warning: {warning}" for warning in check.warnings)


def _difference(check: Checked | CheckRecord, where: str, basis: str) -> str:
    furthest = f"largest difference {check.share_of_peak:.2g} of the peak of {check.output!r}"
    limit = "" if check.max_difference is None else f" (at most {check.max_difference:.3g})"
    return f"{furthest}{where}{limit}{f'; {basis}' if basis else ''}"


def _calibration_lines(calibration: CalibrationRecord) -> Iterator[str]:
    yield f"ranges   {calibration_text(calibration)}"
    yield from (f"  warning: {warning}" for warning in calibration.warnings)


def _accuracy_lines(accuracy: Accuracy, width: int) -> Iterator[str]:
    """One line for one metric, a table for several, and what is to be known of them."""
    difference = (
        f"({accuracy.samples} samples); largest output difference "
        f"{difference_text(accuracy.largest_difference)}"
        f"{f'; {accuracy.basis}' if accuracy.basis else ''}"
    )
    if len(accuracy.metrics) == 1:
        (metric,) = accuracy.metrics
        before, after = metric_text(metric, metric.before), metric_text(metric, metric.after)
        yield f"accuracy {metric_title(metric)} {before} before, {after} after {difference}"
    else:
        yield f"accuracy of {len(accuracy.metrics)} metrics {difference}"
        yield from (f"  {line}" for line in metric_table(accuracy.metrics, width - 2))
    yield from (f"  warning: {warning}" for warning in accuracy.warnings)


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
    within, allowed = max(apart), lines[0].tolerance
    if within > allowed:
        return (
            f"apart from the graph that the file is made of, which numpy ran, by at most "
            f"{within:.0e} of the largest value ({samples})"
        )
    return (
        f"agrees with numpy within {within:.0e} of the largest value "
        f"({samples}; at most {allowed:.0e} is allowed)"
    )
