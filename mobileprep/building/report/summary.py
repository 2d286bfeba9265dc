"""Summary of a recipe's models and targets side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from mobileprep.building.report.collect import Report
from mobileprep.building.report.layout import TextTable, columns, fitted
from mobileprep.building.stages.candidate.report import candidate_lines
from mobileprep.building.stages.candidate.spec import Candidate
from mobileprep.building.stages.validate.report import metric_text, metric_title
from mobileprep.core.printable import plain

_NONE: Final = "-"


def summary_text(reports: Sequence[Report], width: int) -> str:
    """Format tables for each recipe with several models, or ways to quantize."""
    lines: list[str] = []
    for recipe, group in groupby(reports, key=lambda report: report.recipe):
        targets = list(group)
        models, metric = candidates_of(targets)
        if models:
            title = f"{recipe}: {len(models)} candidates"
            lines += [title, *candidate_lines(models, width, metric)]
        if len({report.quantize for report in targets}) > 1:
            lines += [f"{recipe}: {len(targets)} targets", *_lines(targets, width)]
    return "".join(f"{plain(line)}\n" for line in lines)


def candidates_of(reports: Iterable[Report]) -> tuple[list[Candidate], str]:
    """Return the models of a recipe with several, and the metric that all of them have.

    A model with several devices or runtimes has a row for each, named like its target.
    """
    candidates = [(report, report.candidate) for report in reports if report.candidate is not None]
    titles = {_first_metric_title(report) for report, _ in candidates}
    metric = titles.pop() if len(titles) == 1 else ""
    rows: dict[Candidate, tuple[str, float | None]] = {}
    for report, candidate in candidates:
        value = report.accuracy.metrics[0].before if metric and report.accuracy else None
        rows.setdefault(candidate, (report.target, value))
    names = Counter(candidate.model for candidate in rows)
    return [
        replace(c, model=c.model if names[c.model] == 1 else target, metric=value)
        for c, (target, value) in rows.items()
    ], metric


def _first_metric_title(report: Report) -> str:
    metrics = () if report.accuracy is None else report.accuracy.metrics
    return metric_title(metrics[0]) if metrics else ""


def _lines(reports: Sequence[Report], width: int) -> list[str]:
    """Format the table in the widest form that fits, or in several lines per row if none does."""
    forms = [_columns(reports)]
    # Output names are usually the longest part of headings of metrics.
    short = [replace(c, heading=c.heading.partition(" of ")[0]) for c in forms[0]]
    omissions = ((), ("source",), ("source", "compressed"))
    forms += [[column for column in short if column.about not in names] for names in omissions]
    for form in forms:
        lines = columns(_table(form))
        if all(len(line) <= width for line in lines):
            return lines
    return fitted(_table(forms[0]), width)


class _Column(Struct, frozen=True):
    """A heading and the cell of each target.

    Args:
        about: column ID: ``target``, ``size``, ``compressed``, ``source``, ``metric``, ...
    """

    about: str
    heading: str
    cells: tuple[str, ...]


def _columns(reports: Sequence[Report]) -> list[_Column]:
    table_columns = [
        _Column("target", "target", tuple(report.target for report in reports)),
        _Column("quantize", "quantize", tuple(report.quantize or _NONE for report in reports)),
        _size_column("size", "bytes", (report.model.bytes for report in reports)),
        _size_column("compressed", "compressed", (r.compressed.bytes for r in reports)),
    ]
    accuracies = [report.accuracy for report in reports if report.accuracy is not None]
    titles = dict.fromkeys(metric_title(m) for accuracy in accuracies for m in accuracy.metrics)
    for title in titles:
        before, after = zip(*(_metric(report, title) for report in reports), strict=True)
        table_columns += [_Column("source", "source", before), _Column("metric", title, after)]
    if accuracies:
        table_columns.append(_Column("off", "off by", tuple(map(off_by, reports))))
    if any(accuracy.is_of_graph for accuracy in accuracies):
        table_columns.append(_Column("basis", "measured on", tuple(map(_measured_on, reports))))
    return table_columns


def _size_column(about: str, heading: str, sizes: Iterable[int]) -> _Column:
    return _Column(about, heading, tuple(f"{size:,}" for size in sizes))


def _table(table_columns: Sequence[_Column]) -> TextTable:
    rows = tuple(zip(*(column.cells for column in table_columns), strict=True))
    return TextTable(tuple(column.heading for column in table_columns), rows, left=2)


def off_by(report: Report) -> str:
    """Return the largest difference of any output, as a fraction of that output's peak."""
    outputs = () if report.accuracy is None else report.accuracy.outputs
    shares = [output.share_of_peak for output in outputs if output.share_of_peak is not None]
    return f"{max(shares):.2g}" if shares else _NONE


def _measured_on(report: Report) -> str:
    """Return the measured file or graph, and its engine."""
    basis = "" if report.accuracy is None else report.accuracy.basis
    return basis.removeprefix("measured on ") or _NONE


def _metric(report: Report, title: str) -> tuple[str, str]:
    """Return a metric of the source and of the model."""
    accuracy = report.accuracy
    for metric in () if accuracy is None else accuracy.metrics:
        if metric_title(metric) == title:
            return metric_text(metric, metric.before), metric_text(metric, metric.after)
    return _NONE, _NONE
