"""Report the metrics before and after."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from mobileprep.building.report.layout import TextTable, columns
from mobileprep.building.stages.transform.report import difference_text
from mobileprep.building.stages.validate.spec import Accuracy, MetricRecord, ValidationRecord


def accuracy_of(record: ValidationRecord) -> Accuracy:
    return Accuracy(**{name: getattr(record, name) for name in Accuracy.__struct_fields__})


def accuracy_lines(accuracy: Accuracy, width: int, name: str = "") -> Iterator[str]:
    """Yield one line for one metric or a table for several, followed by the warnings.

    Args:
        name: name of the data set, if there are several.
    """
    difference = (
        f"({accuracy.samples} samples{f' of {name}' if name else ''}); largest output difference "
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


METRIC_HEADINGS: Final = ("metric", "output", "before", "after", "limit")


TOP_K: Final = re.compile(r"top([0-9]+)")


def metric_title(record: MetricRecord) -> str:
    """Format the name of a metric: ``top-1``, ``psnr of 'image'``."""
    top = TOP_K.fullmatch(record.metric)
    return f"top-{top[1]}" if top else f"{record.metric} of {record.output!r}"


def metric_cells(record: MetricRecord) -> tuple[str, ...]:
    """Format a metric as a row below ``METRIC_HEADINGS``."""
    before, after = (metric_text(record, value) for value in (record.before, record.after))
    return record.metric, record.output, before, after, limit_text(record)


def metric_text(record: MetricRecord, value: float) -> str:
    """Format an accuracy with four decimal places, or another value with six digits."""
    return f"{value:.4f}" if TOP_K.fullmatch(record.metric) else f"{value:.6g}"


def limit_text(record: MetricRecord) -> str:
    """Describe the limits of a metric."""
    limits = []
    if record.max_drop is not None:
        limits.append(f"{'drop' if record.higher_is_better else 'rise'} {record.max_drop:g}")
    if record.at_least is not None:
        limits.append(f"at least {record.at_least:g}")
    if record.at_most is not None:
        limits.append(f"at most {record.at_most:g}")
    return ", ".join(limits)


def metric_table(records: Sequence[MetricRecord], width: int) -> list[str]:
    """Format a table of metrics, or a sentence for each if the table does not fit the width."""
    rows = tuple(map(metric_cells, records))
    lines = columns(TextTable(METRIC_HEADINGS, rows, left=2))
    if max(map(len, lines)) <= width:
        return lines
    return [
        f"{metric_title(r)}: {metric_text(r, r.before)} before, {metric_text(r, r.after)} after "
        f"({limit_text(r)})"
        for r in records
    ]
