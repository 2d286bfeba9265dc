"""The targets of a recipe side by side: how each quantizes, and what that costs and saves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from mobileprep.inspection.visible import plain
from mobileprep.report.collect import Report
from mobileprep.report.layout import TextTable, fitted
from mobileprep.report.metric_table import metric_text, metric_title

_HEADINGS: Final = ("target", "quantize", "bytes", "compressed")
_NONE: Final = "-"


def summary_text(reports: Sequence[Report], width: int) -> str:
    """A table for each recipe some of whose targets quantize, and otherwise than others.

    Args:
        reports: of all targets, those of a recipe one after the other.
        width: the most characters of a line.
    """
    lines: list[str] = []
    for recipe, group in groupby(reports, key=lambda report: report.recipe):
        alike = list(group)
        if len({report.quantize for report in alike}) > 1:
            lines += [f"{recipe}: {len(alike)} targets", *fitted(summary_table(alike), width)]
    return "".join(f"{plain(line)}\n" for line in lines)


def summary_table(reports: Sequence[Report]) -> TextTable:
    """A row for each target: sizes, metrics with those of the source, and how far outputs are off.

    Args:
        reports: of the targets of one recipe.
    """
    metrics = dict.fromkeys(
        metric_title(metric)
        for report in reports
        if report.accuracy is not None
        for metric in report.accuracy.metrics
    )
    headings = (text for title in metrics for text in ("source", title))
    has_accuracy = any(report.accuracy is not None for report in reports)
    return TextTable(
        (*_HEADINGS, *headings, *["off by"] * has_accuracy),
        tuple(
            (*_facts(report), *_metrics(report, tuple(metrics)), *[off_by(report)] * has_accuracy)
            for report in reports
        ),
        left=2,
    )


def off_by(report: Report) -> str:
    """The largest difference of any output, as a share of that output's peak."""
    outputs = () if report.accuracy is None else report.accuracy.outputs
    shares = [output.share_of_peak for output in outputs if output.share_of_peak is not None]
    return f"{max(shares):.2g}" if shares else _NONE


def _facts(report: Report) -> tuple[str, ...]:
    sizes = (report.model.bytes, report.compressed.bytes)
    return (report.target, report.quantize or _NONE, *(f"{size:,}" for size in sizes))


def _metrics(report: Report, titles: Sequence[str]) -> Iterator[str]:
    accuracy = report.accuracy
    by_title = {} if accuracy is None else {metric_title(m): m for m in accuracy.metrics}
    for title in titles:
        metric = by_title.get(title)
        values = () if metric is None else (metric.before, metric.after)
        yield from (_NONE, _NONE) if metric is None else (metric_text(metric, v) for v in values)
